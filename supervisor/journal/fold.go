package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"procsup/handles"
)

// A body is what an entry may say of its run.
type body struct {
	Record json.RawMessage `json:"record"`
	Spec   json.RawMessage `json:"spec"`
}

// A head is what the projection takes from a handles.Record.
type head struct {
	ID       string         `json:"handle_id"`
	Session  string         `json:"session_id"`
	Name     string         `json:"name"`
	Status   handles.Status `json:"status"`
	Revision int64          `json:"revision"`
	Seq      int64          `json:"seq"`
	Delivery string         `json:"delivery"`
}

// A fold is one run as its entries tell it, in their order.
type fold struct {
	run     Run
	ended   int64 // ms, of the last record of a run that has ended
	keys    map[string]string
	entries int
	records int
	unfit   []string // entries that cannot be folded
}

// add takes the next entry; keys is what the journal keeps beside it.
func (f *fold) add(e *Entry, keys string) {
	if f.entries++; f.entries == 1 {
		f.run.ID, f.run.Created = e.Run, e.At.UnixMilli()
	}
	if keys != "" {
		f.addKeys(e, keys)
	}
	var b body
	if len(e.Body) > 0 {
		if err := json.Unmarshal(e.Body, &b); err != nil {
			f.refuse(e, "its body is not JSON: "+err.Error())
			return
		}
	}
	if b.Record == nil || string(b.Record) == "null" {
		return
	}
	var h head
	if err := json.Unmarshal(b.Record, &h); err != nil {
		f.refuse(e, "its record cannot be read: "+err.Error())
		return
	}
	switch {
	case h.ID != e.Run:
		f.refuse(e, fmt.Sprintf("its record is of %q", h.ID))
		return
	case h.Revision < f.run.Revision:
		f.refuse(e, fmt.Sprintf("its revision is %d after %d", h.Revision, f.run.Revision))
	case f.records > 0 && !f.run.Live && !h.Status.Terminal():
		f.refuse(e, fmt.Sprintf("its status is %q after the end", h.Status))
	}
	f.take(e, &b, &h)
}

func (f *fold) take(e *Entry, b *body, h *head) {
	if f.records++; f.records == 1 {
		f.run.Session, f.run.Name, f.run.Live = h.Session, h.Name, true
	}
	f.run.Status, f.run.Revision, f.run.Seq, f.run.Record = string(h.Status), h.Revision, e.Seq, b.Record
	if h.Status.Terminal() {
		f.run.Live = false
	}
	if !f.run.Live {
		f.ended = e.At.UnixMilli()
	}
	f.run.Owed = !f.run.Live && h.Delivery == handles.DeliveryPending
	if b.Spec != nil && string(b.Spec) != "null" {
		f.run.Spec = b.Spec
	}
}

func (f *fold) addKeys(e *Entry, keys string) {
	var pairs [][2]string
	if err := json.Unmarshal([]byte(keys), &pairs); err != nil {
		f.refuse(e, "its keys cannot be read: "+err.Error())
		return
	}
	if f.keys == nil {
		f.keys = map[string]string{}
	}
	for _, p := range pairs {
		f.keys[p[0]] = p[1]
	}
}

func (f *fold) refuse(e *Entry, why string) {
	f.unfit = append(f.unfit, fmt.Sprintf("entry %d (%s) of %s: %s", e.Seq, e.Kind, e.Run, why))
}

// differs names the first field in which the stored run is not the fold, ""
// when there is none.
func (f *fold) differs(r *Run, ended int64) string {
	for _, c := range []struct {
		field     string
		got, want any
	}{
		{"session", r.Session, f.run.Session},
		{"name", r.Name, f.run.Name},
		{"status", r.Status, f.run.Status},
		{"live", r.Live, f.run.Live},
		{"created", r.Created, f.run.Created},
		{"ended", ended, f.ended},
		{"revision", r.Revision, f.run.Revision},
		{"seq", r.Seq, f.run.Seq},
		{"owed", r.Owed, f.run.Owed},
	} {
		if c.got != c.want {
			return fmt.Sprintf("%s is %v, its entries say %v", c.field, c.got, c.want)
		}
	}
	switch {
	case !sameJSON(r.Record, f.run.Record):
		return "record is not the one of its entries"
	case !sameJSON(r.Spec, f.run.Spec):
		return "spec is not the one of its entries"
	}
	return ""
}

// sameJSON tells whether a and b say the same.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errA := decode(a)
	y, errB := decode(b)
	return errA == nil && errB == nil && reflect.DeepEqual(x, y)
}

func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // no digit of a large number is lost
	err = d.Decode(&v)
	return v, err
}

// verify refuses a batch whose runs are not what its entries say of them.
func verify(b *Batch) error {
	folds := map[string]*fold{}
	for i := range b.Entries {
		e := &b.Entries[i]
		f := folds[e.Run]
		if f == nil {
			f = &fold{}
			folds[e.Run] = f
		}
		f.add(e, "")
	}
	told := map[string]bool{}
	for i := range b.Runs {
		r := &b.Runs[i]
		told[r.ID] = true
		f := folds[r.ID]
		if f.records == 0 {
			return invalid("run %s: none of its entries has its record", r.ID)
		}
		same := *r
		same.Created = f.run.Created
		if why := f.differs(&same, f.ended); why != "" {
			return invalid("run %s: %s", r.ID, why)
		}
	}
	for id, f := range folds {
		switch {
		case len(f.unfit) > 0:
			return invalid("%s", f.unfit[0])
		case f.records > 0 && !told[id]:
			return invalid("run %s: its entry has a record and the batch no run", id)
		}
	}
	return nil
}
