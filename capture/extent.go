package capture

import "fmt"

// A Range is the bytes From up to, not including, To of a stream.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Len returns the number of bytes in the range.
func (r Range) Len() int64 { return r.To - r.From }

// Extent is what there is of a stream.
type Extent struct {
	Total   int64   `json:"total"`             // bytes the command wrote, kept or not
	Omitted []Range `json:"omitted,omitempty"` // bytes that cannot be read, in order
	Missing string  `json:"missing,omitempty"` // why, when it is not the limit: "disk full", "spool deleted", …
}

// Lost returns the number of bytes omitted.
func (e Extent) Lost() int64 { return ranges(e.Omitted).sum() }

// Omitted is the error of a read that begins in bytes that were not kept.
// Reading goes on at To.
type Omitted struct{ Range }

func (o *Omitted) Error() string {
	return fmt.Sprintf("bytes %d to %d are omitted", o.From, o.To)
}

// maxRanges bounds the gaps a stream remembers. Past it the two closest become
// one: some bytes that are there are then called omitted, never the reverse.
const maxRanges = 256

// ranges is sorted, without empty, touching or overlapping members.
type ranges []Range

// add returns r with x in it. r may be changed.
func (r ranges) add(x Range) ranges {
	if x.From >= x.To {
		return r
	}
	i := 0
	for i < len(r) && r[i].To < x.From {
		i++
	}
	j := i
	for j < len(r) && r[j].From <= x.To {
		x.From, x.To = min(x.From, r[j].From), max(x.To, r[j].To)
		j++
	}
	out := make(ranges, 0, len(r)+1)
	out = append(append(append(out, r[:i]...), x), r[j:]...)
	if len(out) > maxRanges {
		out = out.squeeze()
	}
	return out
}

// squeeze joins the two neighbours with the fewest bytes between them.
func (r ranges) squeeze() ranges {
	best := 1
	for i := 2; i < len(r); i++ {
		if r[i].From-r[i-1].To < r[best].From-r[best-1].To {
			best = i
		}
	}
	r[best-1].To = r[best].To
	return append(r[:best], r[best+1:]...)
}

// at returns the range that holds off.
func (r ranges) at(off int64) (Range, bool) {
	for _, x := range r {
		if off < x.To {
			return x, off >= x.From
		}
	}
	return Range{}, false
}

// next returns where the first range behind off begins, limit when there is none before limit.
func (r ranges) next(off, limit int64) int64 {
	for _, x := range r {
		if x.From >= limit {
			break
		}
		if x.From >= off {
			return x.From
		}
	}
	return limit
}

// sum returns the bytes in all ranges.
func (r ranges) sum() (n int64) {
	for _, x := range r {
		n += x.Len()
	}
	return n
}
