package lint

import (
	"encoding/json"
	"fmt"
	"io"
)

// A Report is what --json prints.
type Report struct {
	Files    int       `json:"files"`
	Warnings int       `json:"warnings"`
	Notes    int       `json:"notes"`
	Findings []Finding `json:"findings"`
}

// NewReport counts.
func NewReport(files int, found []Finding) Report {
	r := Report{Files: files, Findings: append([]Finding{}, found...)}
	for _, f := range found {
		if f.Level == Warning {
			r.Warnings++
		} else {
			r.Notes++
		}
	}
	return r
}

// WriteText prints a line for each finding, and with fix a second one with
// what to write in its place.
func (r Report) WriteText(w io.Writer, fix bool) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
		if fix && f.Fix != "" {
			if _, err := fmt.Fprintln(w, "    fix: "+f.Fix); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteJSON prints the report as one object.
func (r Report) WriteJSON(w io.Writer) error { return indented(w, r) }

func indented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
