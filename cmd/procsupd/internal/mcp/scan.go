package mcp

import (
	"encoding/json"
	"strconv"
)

// maxID bounds an id.
const maxID = 256

// An idScan finds the id of a message that is read byte by byte, so that one
// that is too long to be kept can still be answered. Messages come with the id
// at either end: behind megabytes of parameters, in the TypeScript SDK.
type idScan struct {
	depth    int
	inString bool
	escaped  bool
	object   bool // the outermost value is one
	keyNext  bool // a string at depth 1 is a key
	inKey    bool
	inID     bool // what is read is the value of the key "id"
	key, id  []byte
}

func (s *idScan) Write(b []byte) (int, error) {
	for _, c := range b {
		s.next(c)
	}
	return len(b), nil
}

func (s *idScan) next(c byte) {
	if s.inID && !(s.depth == 1 && !s.inString && (c == ',' || c == '}')) && len(s.id) <= maxID {
		s.id = append(s.id, c)
	}
	switch {
	case s.escaped:
		s.escaped = false
		s.note(c)
	case s.inString && c == '\\':
		s.escaped = true
		s.note(c)
	case s.inString && c == '"':
		s.inString, s.inKey = false, false
	case s.inString:
		s.note(c)
	default:
		s.structure(c)
	}
}

// note keeps a byte of a key.
func (s *idScan) note(c byte) {
	if s.inKey && len(s.key) <= maxID {
		s.key = append(s.key, c)
	}
}

func (s *idScan) structure(c byte) {
	switch c {
	case '"':
		s.inString = true
		if s.inKey = s.keyNext && s.depth == 1; s.inKey {
			s.key = s.key[:0]
		}
	case '{', '[':
		if s.depth++; s.depth == 1 {
			s.object = c == '{'
			s.keyNext = s.object
		}
	case '}', ']':
		s.depth--
		s.inID = s.inID && s.depth > 0
	case ':', ',':
		if s.depth != 1 || !s.object {
			return
		}
		s.keyNext = c == ','
		if s.inID = c == ':' && s.isID(); s.inID {
			s.id = s.id[:0]
		}
	}
}

func (s *idScan) isID() bool {
	var key string
	return json.Unmarshal([]byte(`"`+string(s.key)+`"`), &key) == nil && key == "id"
}

// found is the id as it was written, null if there is none that can be used: a
// string or a whole number that survives being read as a double.
func (s *idScan) found() json.RawMessage {
	var v any
	if len(s.id) <= maxID && json.Unmarshal(s.id, &v) == nil {
		switch v := v.(type) {
		case string:
			b, err := json.Marshal(v)
			if err == nil {
				return b
			}
		case float64:
			n := int64(v)
			if b := strconv.FormatInt(n, 10); v == float64(n) && n > -1<<53 && n < 1<<53 && string(trim(s.id)) == b {
				return json.RawMessage(b)
			}
		}
	}
	return json.RawMessage("null")
}

// present reports whether there was an id at all, usable or not.
func (s *idScan) present() bool { return len(s.id) > 0 }
