package journal

func verify(*Batch) error { return nil }
