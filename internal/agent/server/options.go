package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/stacks/state"
)

// Cluster that the agent scales.
type Cluster struct {
	provisioner.Cluster
	// Client of the cluster, for its nodes and pods.
	Client kubernetes.Interface
	// Runner makes and deletes its machines.
	Runner provisioner.Runner
}

// Options of a Server. Zero durations take the defaults.
type Options struct {
	// Clusters that the agent scales, one at least, each by a name of its own.
	Clusters []Cluster
	// Store keeps what was begun.
	Store Store
	// States is where ksctl's store is, in StatesNamespace; nil: exports are not taken.
	States          dynamic.Interface
	StatesNamespace string

	// ListWithin, CreateWithin and DeleteWithin are how long a run of the provisioner may take:
	// 30 seconds, 30 minutes, 15 minutes.
	ListWithin, CreateWithin, DeleteWithin time.Duration
	// DrainWithin is how long a node may take to be drained; 5 minutes. An operation fails then,
	// and nothing is deleted, unless ForceAfterDrain is set: the machine goes with what is on it.
	DrainWithin     time.Duration
	ForceAfterDrain bool
	// StopWithin is how long a run of the provisioner may go on when the agent is to end; 45 seconds.
	StopWithin time.Duration
	// MaxWorkers that a cluster may be asked to have; 1000.
	MaxWorkers uint32

	Clock   clock.Clock
	Log     logr.Logger
	Metrics *Metrics
}

// complete checks the options and fills in defaults.
func (o *Options) complete() error {
	or := func(d *time.Duration, other time.Duration) {
		if *d <= 0 {
			*d = other
		}
	}
	or(&o.ListWithin, 30*time.Second)
	or(&o.CreateWithin, 30*time.Minute)
	or(&o.DeleteWithin, 15*time.Minute)
	or(&o.DrainWithin, 5*time.Minute)
	or(&o.StopWithin, 45*time.Second)
	if o.MaxWorkers == 0 {
		o.MaxWorkers = 1000
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.StatesNamespace == "" {
		o.StatesNamespace = state.StoreNamespace
	}
	if len(o.Clusters) == 0 {
		return errors.New("the agent has no cluster: name one")
	}
	names := map[string]bool{}
	for _, c := range o.Clusters {
		switch {
		case !clusterName.MatchString(c.Name):
			return fmt.Errorf("cluster %.60q: want 2 to 50 of a-z, 0-9 and -, beginning with a letter and not ending with -", c.Name)
		case names[c.Name]:
			return fmt.Errorf("cluster %s is named twice", c.Name)
		case c.Client == nil:
			return fmt.Errorf("cluster %s: there is no access to it", c.Name)
		case c.Runner == nil:
			return fmt.Errorf("cluster %s: it has no provisioner", c.Name)
		}
		names[c.Name] = true
	}
	if o.Store == nil {
		return errors.New("the agent needs a store")
	}
	return nil
}
