package lint

import (
	"cmp"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string       `json:"id"`
		Short   sarifMessage `json:"shortDescription"`
		Help    sarifMessage `json:"help"`
		Default sarifDefault `json:"defaultConfiguration"`
	}
	sarifDefault struct {
		Level Level `json:"level"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID     string          `json:"ruleId"`
		RuleIndex  int             `json:"ruleIndex"`
		Level      Level           `json:"level"`
		Message    sarifMessage    `json:"message"`
		Locations  []sarifLocation `json:"locations"`
		Properties *sarifBag       `json:"properties,omitempty"`
	}
	sarifBag struct {
		Verdict Verdict `json:"verdict,omitempty"`
		Fix     string  `json:"fix,omitempty"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
		EndLine     int `json:"endLine"`
	}
)

// WriteSARIF prints the report as SARIF 2.1.0 (OASIS), for code scanning.
func (r Report) WriteSARIF(w io.Writer, version string) error {
	driver := sarifDriver{Name: "procsup lint", Version: version}
	for _, rule := range Rules {
		driver.Rules = append(driver.Rules, sarifRule{rule.ID, sarifMessage{rule.Short}, sarifMessage{rule.Help}, sarifDefault{rule.Level}})
	}
	run := sarifRun{Tool: sarifTool{driver}, ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	for _, f := range r.Findings {
		res := sarifResult{
			RuleID: f.Rule, RuleIndex: slices.IndexFunc(Rules, func(r Rule) bool { return r.ID == f.Rule }),
			Level: f.Level, Message: sarifMessage{f.Why},
			Locations: []sarifLocation{{sarifPhysical{sarifArtifact{uri(f.File)}, sarifRegion{f.Line, cmp.Or(f.runes, f.Column), f.EndLine}}}},
		}
		if f.Verdict != "" || f.Fix != "" {
			res.Properties = &sarifBag{f.Verdict, f.Fix}
		}
		run.Results = append(run.Results, res)
	}
	return indented(w, sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}

// uri is a path as a relative or file URI.
func uri(path string) string {
	p := filepath.ToSlash(path)
	var b strings.Builder
	if strings.HasPrefix(p, "/") {
		b.WriteString("file://")
	}
	for i := 0; i < len(p); i++ {
		if c := p[i]; c > ' ' && c < 0x7f && !strings.ContainsRune(`%?#[]"<>\^{}|`+"`", rune(c)) {
			b.WriteByte(c)
		} else {
			const hex = "0123456789ABCDEF"
			b.WriteString("%" + string(hex[c>>4]) + string(hex[c&15]))
		}
	}
	return b.String()
}
