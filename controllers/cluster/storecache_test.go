package cluster

import (
	"errors"
	"testing"
)

func TestStoreVersionIsReadOnce(t *testing.T) {
	var s storeCache
	reads := 0
	load := func() (map[string][]byte, error) { reads++; return nil, nil }
	for _, version := range []string{"1", "1", "2", "2"} {
		if _, err := s.read(storeKey{namespace: "a"}, version, load); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 2 {
		t.Errorf("%d reads, want 2", reads)
	}
	broken := errors.New("broken")
	for range 2 {
		if _, err := s.read(storeKey{namespace: "b"}, "1", func() (map[string][]byte, error) {
			reads++
			return nil, broken
		}); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if reads != 4 {
		t.Errorf("%d reads, want 4: an error is cached", reads)
	}
}
