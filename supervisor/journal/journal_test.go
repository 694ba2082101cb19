package journal

import (
	"fmt"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	j, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := "hto-01ABC"
	rec := []byte(`{"handle_id":"hto-01ABC"}`)
	c := j.Submit(Batch{Entries: []Entry{{Seq: 1, At: time.Now(), Kind: "admitted", Run: id, Body: []byte(`{}`)}},
		Runs: []Run{{ID: id, Session: "s", Name: "n", Live: true, Status: "starting", Seq: 1, Record: rec, Spec: []byte("{}")}}, Keys: []Key{{"k", "f", id}}})
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	c = j.Submit(Batch{Entries: []Entry{{Seq: 2, At: time.Now(), Kind: "ended", Run: id, Body: []byte(`{}`)}},
		Runs: []Run{{ID: id, Session: "s", Name: "n", Live: false, Status: "completed", Seq: 2, Record: rec}}})
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	fmt.Println(j.Run(id))
	fmt.Println(j.Unfinished())
	fmt.Println(j.List(Filter{}))
	fmt.Println(j.Resolve("n", ""))
	fmt.Println(j.Resolve("hto-01A", ""))
	fmt.Println(j.Key("k"))
	fmt.Println(j.Entries(0, id, 0))
	fmt.Println(j.Close(), j.Close())
	fmt.Println(j.Run(id))
}
