package live

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Options of an Index. Zero values stand for the defaults.
type Options struct {
	// Owner is the id of the installation: the value of OwnerLabel that is
	// watched. Required.
	Owner string
	// SecretKey keys the hashes of the data of Secrets in Object.Owned. With
	// another key than before, every Secret counts as drifted once. Without a key
	// a Secret's drift is told by who holds its data, not by what the data is.
	SecretKey []byte
	// Log gets what goes wrong; discarded by default.
	Log logr.Logger
	// Clock for waits and ages; the real one by default.
	Clock clock.WithTicker
	// PageSize of lists; 500 by default.
	PageSize int
	// StaleAfter is how long a watch may be broken before its kind counts as
	// Stale; 30 s by default.
	StaleAfter time.Duration
	// Grace is how long a kind that nobody uses goes on being watched; 5 min by default.
	Grace time.Duration
	// MinBackoff and MaxBackoff bound the wait after a failure, which doubles
	// each time and is spread by half; 250 ms and 30 s by default, client-go's longest.
	MinBackoff, MaxBackoff time.Duration
	// Lists is how many kinds are listed at a time; 4 by default.
	Lists int
	// Confirms is how many GETs that confirm a deletion run at a time; 4 by default.
	Confirms int
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&o.StaleAfter, 30 * time.Second}, {&o.Grace, 5 * time.Minute}, {&o.MinBackoff, 250 * time.Millisecond}, {&o.MaxBackoff, 30 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	for _, n := range []struct {
		value *int
		def   int
	}{{&o.PageSize, 500}, {&o.Lists, 4}, {&o.Confirms, 4}} {
		if *n.value <= 0 {
			*n.value = n.def
		}
	}
}
