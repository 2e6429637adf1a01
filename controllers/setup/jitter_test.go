package setup

import (
	"testing"
	"time"
)

// Installs that were created together are not reconciled together forever.
func TestJitter(t *testing.T) {
	const installs = 10_000
	quarters := [4]int{}
	for range installs {
		d := jitter(10*time.Minute, 10)
		if d < 9*time.Minute || d > 11*time.Minute {
			t.Fatalf("%s is outside of 10m ±10 %%", d)
		}
		quarters[min(3, int((d-9*time.Minute)/(30*time.Second)))]++
	}
	for i, n := range quarters {
		if n < installs/5 || n > installs*3/10 {
			t.Errorf("quarter %d has %d of %d installs, want an even distribution", i, n, installs)
		}
	}
	if d := jitter(time.Minute, 0); d != time.Minute {
		t.Errorf("without jitter: %s", d)
	}
}
