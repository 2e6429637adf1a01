// Package manager wires the controllers into one process.
package manager

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fluxcd/pkg/runtime/acl"
	"github.com/fluxcd/pkg/runtime/controller"
	"github.com/fluxcd/pkg/runtime/features"
	"github.com/fluxcd/pkg/runtime/jitter"
	"github.com/fluxcd/pkg/runtime/leaderelection"
	"github.com/fluxcd/pkg/runtime/logger"
	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/controllers/setup"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/internal/sources/webhook"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/chart"
)

// Options of the controller process. The flags are those that Flux users know,
// where there is one.
type Options struct {
	// OwnerID tells this installation from others on the same cluster. Marks on
	// objects carry it: it must survive a rebuilt management cluster.
	OwnerID string
	// RuntimeNamespace is where the controller runs and keeps what is its own.
	RuntimeNamespace      string
	Concurrent            int
	DefaultServiceAccount string
	EventsAddr            string
	MetricsAddr           string
	HealthAddr            string
	// PprofAddr serves profiles of this process, on loopback; "" serves none.
	PprofAddr string
	// QPS and Burst of requests to the API server; a negative QPS leaves it to
	// the API server's own flow control.
	QPS   float32
	Burst int

	// StoragePath holds fetched and served artifacts. Those of KsctlSources are
	// served at StorageAddr, under the address StorageAdvAddr.
	StoragePath, StorageAddr, StorageAdvAddr string
	// WebhookAddr receives pushes for KsctlSources; "" receives none.
	WebhookAddr                            string
	WebhookBytes                           int64
	ArtifactCacheBytes, SourceStorageBytes int64
	ArtifactLimits                         artifact.Limits
	ArtifactTimeout                        time.Duration
	GitLimits                              git.Limits
	RenderCacheBytes                       int64
	// CatalogURL has stacks beside those that are shipped.
	CatalogURL      string
	CatalogInsecure bool
	Render          Rendering
	// RenderProgram starts a render worker: a program, this one when empty, and
	// its arguments. Without it stacks are rendered in this process: only a command
	// knows that it can be started so.
	RenderProgram []string
	// SOPSWorker is the program that decrypts files; beside this program's own when empty.
	SOPSWorker string
	// ArgoCDNamespaces may get the Secrets by which Argo CD knows clusters.
	ArgoCDNamespaces []string
	// InsecureKubeConfigTLS takes kubeconfigs that do not verify who answers.
	InsecureKubeConfigTLS bool
	// NodeGroupAddr is where Cluster Autoscaler is answered, NodeGroupAdvAddr what it is told.
	NodeGroupAddr, NodeGroupAdvAddr string
	// ChartCacheBytes bounds the charts of repositories on disk, ChartIndexBytes one index.yaml.
	ChartCacheBytes, ChartIndexBytes int64
	ChartLimits                      stacks.ChartLimits

	// NoRemoteBases is always true: a kustomization never fetches bases here. The flag
	// is there so that the arguments of Flux's controllers can be carried over.
	NoRemoteBases bool

	ACL            acl.Options
	Watch          controller.WatchOptions
	Jitter         jitter.IntervalOptions
	LeaderElection leaderelection.Options
	Log            logger.Options
	Features       features.FeatureGates
}

// BindFlags adds the flags to a set.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	namespace := os.Getenv("RUNTIME_NAMESPACE")
	if namespace == "" {
		namespace = "ksctl-gitops-system"
	}
	fs.StringVar(&o.OwnerID, "owner-id", "ksctl", "Tells this installation from others on the same cluster. Objects are marked with it; changing it gives them up.")
	fs.StringVar(&o.RuntimeNamespace, "runtime-namespace", namespace, "The namespace that the controller runs in ($RUNTIME_NAMESPACE).")
	fs.IntVar(&o.Concurrent, "concurrent", setup.DefaultConcurrent, "The number of reconciles of each kind that run at a time.")
	fs.StringVar(&o.DefaultServiceAccount, "default-service-account", "", "The account for installs that name none; its rights are used instead of the controller's.")
	fs.StringVar(&o.EventsAddr, "events-addr", "", "The address of the events receiver, such as notification-controller.")
	fs.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "The address that metrics are served at; 0 serves none.")
	fs.StringVar(&o.HealthAddr, "health-addr", ":9440", "The address that /healthz and /readyz are served at.")
	fs.StringVar(&o.PprofAddr, "pprof-addr", "", "The address on loopback that profiles of the process are served at, as 127.0.0.1:6060; empty serves none.")
	fs.Float32Var(&o.QPS, "kube-api-qps", -1, "The requests a second to the API server; negative leaves it to the server's flow control.")
	fs.IntVar(&o.Burst, "kube-api-burst", 300, "The requests that may be sent at once above --kube-api-qps.")
	fs.StringVar(&o.StoragePath, "storage-path", filepath.Join(os.TempDir(), "ksctl-gitops"), "The folder for fetched and served artifacts.")
	fs.StringVar(&o.StorageAddr, "storage-addr", ":9090", "The address that artifacts of KsctlSources are served at.")
	fs.StringVar(&o.StorageAdvAddr, "storage-adv-addr", "", "The host that artifacts of KsctlSources and of installs that publish are fetched from; that of --storage-addr when empty.")
	fs.StringVar(&o.WebhookAddr, "webhook-addr", "", "The address that webhooks of KsctlSources are received at, such as :9292; empty receives none.")
	fs.Int64Var(&o.WebhookBytes, "webhook-max-bytes", webhook.DefaultMaxBytes, "The largest body of a webhook that is read, in bytes.")
	fs.StringVar(&o.CatalogURL, "catalog-url", "", "The repository with versions of catalogue stacks that are not shipped, as oci://registry/repository; each is at <stack>:<version> below it.")
	fs.BoolVar(&o.CatalogInsecure, "catalog-insecure", false, "Allow plain http for --catalog-url.")
	limits := artifact.DefaultLimits()
	fs.Int64Var(&o.SourceStorageBytes, "source-storage-bytes", storage.DefaultBytes, "The bytes that artifacts of KsctlSources and of installs that publish may take on disk, all together.")
	fs.Int64Var(&o.ArtifactCacheBytes, "artifact-cache-bytes", 1<<30, "The bytes that unpacked artifacts may take on disk.")
	fs.Int64Var(&o.RenderCacheBytes, "render-cache-bytes", stacks.DefaultCacheBytes, "The bytes that remembered renders may take in memory, compressed.")
	fs.DurationVar(&o.ArtifactTimeout, "artifact-timeout", artifact.DefaultTimeout, "How long one attempt to download an artifact may take, and unpacking it.")
	fs.Int64Var(&o.ChartCacheBytes, "chart-cache-bytes", chart.DefaultCacheBytes, "The bytes that charts of repositories may take on disk.")
	fs.Int64Var(&o.ChartIndexBytes, "chart-max-index-bytes", chart.DefaultIndexBytes, "The largest index.yaml of a chart repository that is read, in bytes.")
	bindLimits(fs, &o.ArtifactLimits, limits)
	bindChartLimits(fs, &o.ChartLimits, stacks.DefaultChartLimits())
	bindGitLimits(fs, &o.GitLimits, git.Limits{}.WithDefaults())
	o.Render.bindFlags(fs)
	fs.StringVar(&o.SOPSWorker, "sops-worker", "", "The program that decrypts and encrypts files of SOPS; sops-worker in the folder of this program when empty.")
	fs.StringSliceVar(&o.ArgoCDNamespaces, "argocd-namespaces", nil, "The namespaces of Argo CD that Secrets of clusters may be written into, with the rights of the clusters' accounts; none when empty.")
	fs.BoolVar(&o.InsecureKubeConfigTLS, "insecure-kubeconfig-tls", false, "Take kubeconfigs that do not verify who answers.")
	fs.StringVar(&o.NodeGroupAddr, "nodegroup-addr", "", "The address that node groups of KsctlAutoScalers are served at for Cluster Autoscaler, such as :9443; empty serves none.")
	fs.StringVar(&o.NodeGroupAdvAddr, "nodegroup-adv-addr", "", "The host:port that Cluster Autoscaler reaches --nodegroup-addr at.")
	fs.BoolVar(&o.NoRemoteBases, "no-remote-bases", true, "Kustomizations fetch no remote bases. They never do; false is refused.")
	o.ACL.BindFlags(fs)
	o.Watch.BindFlags(fs)
	o.Jitter.BindFlags(fs)
	o.LeaderElection.BindFlags(fs)
	o.Log.BindFlags(fs)
	o.Features.BindFlags(fs)
	// All ConfigMaps and Secrets that installs name are watched, unless a flag restricts that.
	if f := fs.Lookup("watch-configs-label-selector"); f != nil {
		f.DefValue = ""
		o.Watch.ConfigsLabelSelector = ""
		f.Usage = "Watch only ConfigMaps and Secrets with these labels; others that installs name are read at each reconcile."
	}
}

// supported guards the feature gates, which fluxcd/pkg/runtime/features keeps
// for the whole process.
var supported sync.Mutex

// Validate says what is wrong with the options.
func (o *Options) Validate() error {
	if err := setup.CheckOwnerID(o.OwnerID); err != nil {
		return fmt.Errorf("--owner-id: %w", err)
	}
	if o.RuntimeNamespace == "" {
		return errors.New("--runtime-namespace is empty: want the namespace that the controller runs in")
	}
	if o.Concurrent < 1 {
		return fmt.Errorf("--concurrent %d: want at least 1", o.Concurrent)
	}
	if o.Jitter.Percentage >= 100 {
		return fmt.Errorf("--interval-jitter-percentage %d: want less than 100", o.Jitter.Percentage)
	}
	if o.SourceStorageBytes < 1 {
		return fmt.Errorf("--source-storage-bytes %d: want at least 1", o.SourceStorageBytes)
	}
	if o.WebhookBytes < 1 {
		return fmt.Errorf("--webhook-max-bytes %d: want at least 1", o.WebhookBytes)
	}
	if o.ArtifactTimeout <= 0 {
		return fmt.Errorf("--artifact-timeout %s: want more than 0", o.ArtifactTimeout)
	}
	if o.ChartLimits.Bytes < 1 {
		return fmt.Errorf("--chart-max-bytes %d: want at least 1", o.ChartLimits.Bytes)
	}
	if o.ChartLimits.Files < 1 {
		return fmt.Errorf("--chart-max-files %d: want at least 1", o.ChartLimits.Files)
	}
	if !o.NoRemoteBases {
		return errors.New("--no-remote-bases=false: remote bases are never fetched here; bring them into the source, and take the flag out")
	}
	if o.PprofAddr != "" {
		// Profiles tell what is in memory, and take time: they are for who is on the machine.
		host, _, err := net.SplitHostPort(o.PprofAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			return fmt.Errorf("--pprof-addr %q: want an address on loopback, such as 127.0.0.1:6060", o.PprofAddr)
		}
	}
	if err := o.Render.validate(); err != nil {
		return err
	}
	supported.Lock()
	defer supported.Unlock()
	return o.Features.SupportedFeatures(map[string]bool{})
}
