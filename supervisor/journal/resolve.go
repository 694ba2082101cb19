package journal

import (
	"database/sql"
	"fmt"
	"strings"

	"procsup/handles"
)

const examples = 5 // ids in the error of an ambiguous reference

// Resolve gives the id that ref means: a whole id, a prefix that only one id
// has, or a name, of a live run first, else of the newest that has ended. Names
// are those of session, or with "" of any. The error is handles.ErrNotFound or
// of handles.CodeAmbiguous, then it lists a few ids.
func (j *Journal) Resolve(ref, session string) (string, error) {
	id := canonical(ref)
	rows, err := j.query(j.q.byID, id)
	if err != nil {
		return "", err
	}
	if _, found, err := first(rows, one[string]); found || err != nil {
		return id, err
	}
	if isPrefix(id) {
		rows, err := j.query(j.q.byPrefix, id, id+"\x7f", examples+1) // ids are ASCII below DEL
		if err != nil {
			return "", err
		}
		ids, err := collect(rows, one[string])
		switch {
		case err != nil:
			return "", err
		case len(ids) == 1:
			return ids[0], nil
		case len(ids) > 1:
			return "", ambiguous(ref, "begins the ids of", ids)
		}
	}
	return j.resolveName(ref, session)
}

func (j *Journal) resolveName(name, session string) (string, error) {
	if name == "" {
		return "", notFound(name)
	}
	type hit struct {
		id   string
		live bool
	}
	var rows *sql.Rows
	var err error
	if session != "" {
		rows, err = j.query(j.q.byName, name, session, examples+1)
	} else {
		rows, err = j.query(j.q.byNameAnywhere, name, examples+1)
	}
	if err != nil {
		return "", err
	}
	hits, err := collect(rows, func(h *hit) []any { return []any{&h.id, &h.live} })
	if err != nil {
		return "", err
	}
	var live []string
	for _, h := range hits {
		if h.live {
			live = append(live, h.id)
		}
	}
	switch {
	case len(hits) == 0:
		return "", notFound(name)
	case len(live) > 1:
		return "", ambiguous(name, "is the name of", live)
	}
	return hits[0].id, nil
}

// isPrefix reports whether ref has the class of an id before the dash, and
// something after it.
func isPrefix(ref string) bool {
	return len(ref) > len(handles.CommandPrefix) && (strings.HasPrefix(ref, handles.CommandPrefix) || strings.HasPrefix(ref, handles.FilePrefix))
}

// canonical writes an id as we do: ULIDs are read in either case.
func canonical(ref string) string {
	if class, rest, ok := strings.Cut(ref, "-"); ok && len(class) == 3 {
		if id := strings.ToLower(class) + "-" + strings.ToUpper(rest); isPrefix(id) {
			return id
		}
	}
	return ref
}

func ambiguous(ref, what string, ids []string) error {
	n, more := len(ids), ""
	if n > examples {
		ids, n, more = ids[:examples], examples, " and more"
	}
	return &handles.Error{
		Code:    handles.CodeAmbiguous,
		Message: fmt.Sprintf("%q %s %s%s", ref, what, strings.Join(ids[:n], ", "), more),
		ID:      ref,
		Hint:    "write more of the id",
	}
}
