package capture

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// A Record is one entry of an index: when which bytes of a stream came, or
// that bytes were not kept.
type Record struct {
	Source  Source
	Omitted bool // the bytes are gone; Why says why, empty for the limit
	Why     string
	Off     int64         // where the bytes begin in the stream
	Len     int64         // how many
	Mono    time.Duration // CLOCK_MONOTONIC when the first of them came
	Wall    time.Time     // the same moment by the wall clock

	why loss
}

// End returns the offset behind the record's bytes.
func (r Record) End() int64 { return r.Off + r.Len }

// The index is a header and records of one size, little endian:
//
//	0 kind: 1 bytes, 2 gap | 1 source | 2 reason of a gap | 3 zero
//	4 crc32 of all the rest | 8 offset | 16 length | 24 monotonic ns | 32 wall ns
const (
	indexMagic = "procsup index 1\n"
	headerSize = len(indexMagic)
	recordSize = 40

	kindData = 1
	kindGap  = 2
)

// append encodes r at the end of b.
func (r Record) append(b []byte) []byte {
	i := len(b)
	b = append(b, kindData, byte(r.Source), byte(r.why), 0, 0, 0, 0, 0)
	if r.Omitted {
		b[i] = kindGap
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Off))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Len))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Mono))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Wall.UnixNano()))
	binary.LittleEndian.PutUint32(b[i+4:], sum(b[i:i+recordSize]))
	return b
}

func sum(b []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(b[:4]), crc32.IEEETable, b[8:recordSize])
}

// decode reads the record at the start of b and reports whether it is whole.
func decode(b []byte) (r Record, ok bool) {
	if len(b) < recordSize || b[0] != kindData && b[0] != kindGap || b[1] > 1 ||
		binary.LittleEndian.Uint32(b[4:]) != sum(b) {
		return r, false
	}
	r = Record{
		Source:  Source(b[1]),
		Omitted: b[0] == kindGap,
		Off:     int64(binary.LittleEndian.Uint64(b[8:])),
		Len:     int64(binary.LittleEndian.Uint64(b[16:])),
		Mono:    time.Duration(binary.LittleEndian.Uint64(b[24:])),
		Wall:    time.Unix(0, int64(binary.LittleEndian.Uint64(b[32:]))),
		why:     loss(b[2]),
	}
	if r.Omitted {
		r.Why = r.why.String()
	}
	return r, r.Off >= 0 && r.Len > 0 && r.End() > r.Off
}

// parseIndex returns the whole records in b, an index file, and whether that
// is all there is: nothing is torn or missing.
func parseIndex(b []byte) (recs []Record, whole bool) {
	if len(b) < headerSize || string(b[:headerSize]) != indexMagic {
		return nil, false
	}
	b = b[headerSize:]
	whole = len(b)%recordSize == 0
	for ; len(b) >= recordSize; b = b[recordSize:] {
		r, ok := decode(b)
		if ok {
			recs = append(recs, r)
		}
		whole = whole && ok
	}
	return recs, whole
}
