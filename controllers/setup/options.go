package setup

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/sops"
)

// FieldOwner is the field manager of what the controllers write to their own
// kinds, and the reporter of their events.
const FieldOwner = "ksctl-gitops"

// DefaultConcurrent is how many objects of a kind are reconciled at a time.
const DefaultConcurrent = 10

// Options of the reconcilers of one manager. OwnerID, Namespace and StoragePath are
// required; the others have defaults that are fit for use.
type Options struct {
	// OwnerID tells this installation from others on the same cluster, also from the
	// controller that this project ships ("ksctl"). Objects are marked with it: with
	// another one than before they are given up.
	OwnerID string
	// Namespace has a Secret with the key for hashes of secret content. It is made
	// when it is missing.
	Namespace string
	// StoragePath is a folder for what is fetched. One process owns it.
	StoragePath string
	// DefaultServiceAccount is the account of installs that name none; without it such
	// installs are refused.
	DefaultServiceAccount string
	// NoCrossNamespaceRefs refuses sources of other namespaces.
	NoCrossNamespaceRefs bool
	// Selector restricts the KsctlSources and KsctlRemoves that are reconciled; nil: all. Which
	// KsctlInstalls are is up to the manager's cache.
	Selector labels.Selector
	// ArgoCDNamespaces may get the Secrets by which Argo CD knows clusters.
	ArgoCDNamespaces []string
	// InsecureKubeConfigTLS takes kubeconfigs that do not verify who answers.
	InsecureKubeConfigTLS bool
	// ConfigsSelected says that the manager's cache holds only some ConfigMaps and
	// Secrets: others are read at each reconcile.
	ConfigsSelected bool
	// Concurrent is how many objects of each kind are reconciled at a time;
	// DefaultConcurrent when 0.
	Concurrent int
	// Jitter moves intervals by up to so many percent either way, so that not all
	// installs are looked at together.
	Jitter uint8

	// Leads returns an error while another process may lead, though this one was not told
	// yet: nothing is said then to anybody but the API server. nil: none ever does.
	Leads func() error

	// Events gets what happens to objects; nil: the API server.
	Events record.EventRecorder
	// Metrics is where the metrics are registered, such as controller-runtime's metrics.Registry;
	// nil: nowhere.
	Metrics prometheus.Registerer

	// Render renders a stack; nil: stacks.Render, in this process, where a render that
	// loops or eats memory can't be stopped. Requests and results can be
	// serialised, so that a process of its own can do it.
	Render func(context.Context, stacks.Request) (stacks.Result, error)
	// Decrypt decrypts files that are encrypted with SOPS, such as stacks/sops/codec does;
	// nil: they are refused.
	Decrypt sops.Decrypter
	// Encrypt encrypts files with SOPS, such as stacks/sops/codec does; nil: nothing is
	// exported.
	Encrypt sops.Encrypter
	// RenderCacheBytes bounds remembered renders in memory, ArtifactCacheBytes and
	// ChartCacheBytes what is kept on disk.
	RenderCacheBytes, ArtifactCacheBytes, ChartCacheBytes int64
	// ArtifactLimits bound a source and a chart, ArtifactTimeout one attempt to fetch it.
	ArtifactLimits  artifact.Limits
	ArtifactTimeout time.Duration
	// ChartIndexBytes is the largest index.yaml of a chart repository, ChartLimits
	// bound each chart that is rendered.
	ChartIndexBytes int64
	ChartLimits     stacks.ChartLimits
	// CatalogURL has stacks beside those that are shipped, as oci://registry/repository;
	// CatalogInsecure allows plain http for it.
	CatalogURL      string
	CatalogInsecure bool
}

// ownerID is what a label value and a part of an owner key may be.
var ownerID = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// OwnerIDError says that an owner id can't be used.
type OwnerIDError struct{ ID string }

func (e *OwnerIDError) Error() string {
	return fmt.Sprintf("owner id %q: want 1 to 63 of a-z, 0-9, - and ., beginning and ending with a letter or digit", e.ID)
}

// CheckOwnerID returns an *OwnerIDError when an id can't be an Options.OwnerID.
func CheckOwnerID(id string) error {
	if !ownerID.MatchString(id) {
		return &OwnerIDError{ID: id}
	}
	return nil
}

// check says what is wrong with the options.
func (o *Options) check() error {
	if err := CheckOwnerID(o.OwnerID); err != nil {
		return err
	}
	switch {
	case o.Namespace == "":
		return errors.New("setup: no Namespace: want the one that the program runs in")
	case o.StoragePath == "":
		return errors.New("setup: no StoragePath: want a folder for what is fetched")
	case o.Concurrent < 0:
		return fmt.Errorf("setup: Concurrent is %d: want at least 1, or 0 for %d", o.Concurrent, DefaultConcurrent)
	case o.Jitter >= 100:
		return fmt.Errorf("setup: Jitter is %d percent: want less than 100", o.Jitter)
	}
	return nil
}
