package live

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Options configures an Index. A zero value selects the default.
type Options struct {
	// OwnerID is the id of the installation: the index watches objects whose OwnerLabel
	// has this value. Required.
	OwnerID string
	// SecretKey is the HMAC key for the data of Secrets in Object.OwnedHash. If the key
	// changes, every Secret counts as drifted once. Without a key, the hash covers which
	// manager owns the data of a Secret, but not the values.
	SecretKey []byte
	// Log receives failures; discarded by default.
	Log logr.Logger
	// Clock is used for waits and ages; the real clock by default.
	Clock clock.WithTicker
	// PageSize is the page size of lists; 500 by default.
	PageSize int
	// StaleAfter is how long a watch may be broken before its kind counts as
	// Stale; 30 s by default.
	StaleAfter time.Duration
	// IdleGracePeriod is how long the index keeps watching a kind without users; 5 min by
	// default.
	IdleGracePeriod time.Duration
	// MinBackoff and MaxBackoff bound the wait after a failure. The wait doubles after each
	// failure and has a jitter of ±50 %. The defaults are 250 ms and 30 s (the maximum in
	// client-go).
	MinBackoff, MaxBackoff time.Duration
	// ConcurrentLists is how many kinds are listed at the same time; 4 by default.
	ConcurrentLists int
	// ConcurrentConfirms is how many GETs that confirm a deletion run at the same time; 4 by
	// default.
	ConcurrentConfirms int
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	setDefault(&o.StaleAfter, 30*time.Second)
	setDefault(&o.IdleGracePeriod, 5*time.Minute)
	setDefault(&o.MinBackoff, 250*time.Millisecond)
	setDefault(&o.MaxBackoff, 30*time.Second)
	setDefault(&o.PageSize, 500)
	setDefault(&o.ConcurrentLists, 4)
	setDefault(&o.ConcurrentConfirms, 4)
}

func setDefault[T int | time.Duration](value *T, def T) {
	if *value <= 0 {
		*value = def
	}
}
