package server

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/stacks/state"
)

// Cluster is a cluster that the agent scales.
type Cluster struct {
	provisioner.Cluster
	// Client accesses the nodes and pods of the cluster.
	Client kubernetes.Interface
	// Runner creates and deletes the machines of the cluster.
	Runner provisioner.Runner
}

// Options of a Server. Zero durations take the defaults.
type Options struct {
	// Clusters are the clusters that the agent scales: at least one, with unique names.
	Clusters []Cluster
	// Store stores the operations.
	Store Store
	// StatesClient accesses the cluster with ksctl's state store, in StatesNamespace; nil disables
	// the import of exports.
	StatesClient    dynamic.Interface
	StatesNamespace string

	// ListTimeout, CreateTimeout and DeleteTimeout are the time limits of a run of the provisioner.
	// They default to 30 seconds, 30 minutes and 15 minutes.
	ListTimeout, CreateTimeout, DeleteTimeout time.Duration
	// DrainTimeout is the time limit for draining one node. It defaults to 5 minutes. When it is
	// exceeded, the operation fails and deletes nothing, unless ForceAfterDrain is set: then the
	// machine is deleted together with its remaining pods.
	DrainTimeout    time.Duration
	ForceAfterDrain bool
	// StopTimeout is how long a run of the provisioner may continue when the agent shuts down. It
	// defaults to 45 seconds.
	StopTimeout time.Duration
	// MaxWorkers is the maximum number of workers that a caller may request. It defaults to 1000.
	MaxWorkers uint32

	Log     logr.Logger
	Metrics *Metrics
}

// complete sets defaults and validates the options.
func (o *Options) complete() error {
	setDefault := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	setDefault(&o.ListTimeout, 30*time.Second)
	setDefault(&o.CreateTimeout, 30*time.Minute)
	setDefault(&o.DeleteTimeout, 15*time.Minute)
	setDefault(&o.DrainTimeout, 5*time.Minute)
	setDefault(&o.StopTimeout, 45*time.Second)
	o.MaxWorkers = cmp.Or(o.MaxWorkers, 1000)
	o.StatesNamespace = cmp.Or(o.StatesNamespace, state.StoreNamespace)
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if len(o.Clusters) == 0 {
		return errors.New("no cluster is configured")
	}
	names := map[string]bool{}
	for _, c := range o.Clusters {
		switch {
		case !clusterNamePattern.MatchString(c.Name):
			return fmt.Errorf("invalid cluster name %.60q: want 2 to 50 characters of a-z, 0-9 and -, beginning with "+
				"a letter and not ending with -", c.Name)
		case names[c.Name]:
			return fmt.Errorf("cluster %s is configured twice", c.Name)
		}
		names[c.Name] = true
	}
	return nil
}
