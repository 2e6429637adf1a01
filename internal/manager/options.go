// Package manager runs all controllers in one process: flags, cache, leader election, events and
// metrics.
package manager

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

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

// Options configures the controller process. Where Flux has a flag for an option, the flag has the
// same name and meaning here.
type Options struct {
	// Options configures the reconcilers. Run sets those of its fields that have no flag.
	setup.Options
	// RuntimeNamespace is the namespace in which the controller runs and keeps its own objects.
	RuntimeNamespace string
	EventsAddr       string
	MetricsAddr      string
	HealthAddr       string
	// PprofAddr is the loopback address at which pprof profiles are served; "" disables them.
	PprofAddr string
	// QPS and Burst limit requests to the API server. A negative QPS disables the client-side limit
	// and leaves it to the API server's priority and fairness.
	QPS   float32
	Burst int

	// Artifacts of KsctlSources are served at StorageAddr and advertised with the host
	// StorageAdvAddr.
	StorageAddr, StorageAdvAddr string
	// WebhookAddr is the address that receives webhooks for KsctlSources; "" disables them.
	WebhookAddr        string
	WebhookBytes       int64
	SourceStorageBytes int64
	GitLimits          git.Limits
	Render             RenderOptions
	// RenderProgram is the command line of a render worker: the program, which is this program if
	// the string is empty, and its arguments. If the slice is empty, stacks are rendered in this
	// process: only a main package knows that its program accepts the worker's arguments.
	RenderProgram []string
	// SOPSWorker is the path of the program that decrypts and encrypts files. If it is empty, the
	// program is expected in the folder of this program.
	SOPSWorker string
	// NodeGroupAddr is the address of the node group server for Cluster Autoscaler, and
	// NodeGroupAdvAddr the host:port under which Cluster Autoscaler reaches it.
	NodeGroupAddr, NodeGroupAdvAddr string
	// REST configures the REST endpoint.
	REST RESTOptions

	// KindGroups are the API groups in which KsctlKinds may serve kinds.
	KindGroups []string

	// NoRemoteBases must be true: kustomizations never fetch remote bases. The flag exists so that
	// the arguments of Flux's kustomize-controller can be reused.
	NoRemoteBases bool

	ACL            acl.Options
	Watch          controller.WatchOptions
	Jitter         jitter.IntervalOptions
	LeaderElection leaderelection.Options
	Log            logger.Options
	Features       features.FeatureGates
}

// BindFlags adds the flags of the controller to fs.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	namespace := os.Getenv("RUNTIME_NAMESPACE")
	if namespace == "" {
		namespace = "ksctl-gitops-system"
	}
	fs.StringVar(&o.OwnerID, "owner-id", "ksctl", "The ID that distinguishes this installation from others on the "+
		"same cluster. It is part of the ownership labels on objects; after a change the controller no longer owns "+
		"the objects that it applied before.")
	fs.StringVar(&o.RuntimeNamespace, "runtime-namespace", namespace,
		"The namespace in which the controller runs ($RUNTIME_NAMESPACE).")
	fs.IntVar(&o.Concurrent, "concurrent", setup.DefaultConcurrent, "The number of concurrent reconciles per kind.")
	fs.StringVar(&o.DefaultServiceAccount, "default-service-account", "",
		"The service account that is impersonated for objects that do not set spec.serviceAccountName, instead of "+
			"using the controller's own permissions.")
	fs.StringVar(&o.EventsAddr, "events-addr", "",
		"The address of the events receiver, such as Flux's notification-controller.")
	fs.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "The address at which metrics are served; 0 disables them.")
	fs.StringVar(&o.HealthAddr, "health-addr", ":9440", "The address at which /healthz and /readyz are served.")
	fs.StringVar(&o.PprofAddr, "pprof-addr", "",
		"The loopback address at which pprof profiles are served, such as 127.0.0.1:6060; empty disables them.")
	fs.Float32Var(&o.QPS, "kube-api-qps", -1, "The maximum number of requests per second to the API server. A "+
		"negative value disables the client-side limit and leaves it to the server's priority and fairness.")
	fs.IntVar(&o.Burst, "kube-api-burst", 300, "The maximum burst of requests to the API server above --kube-api-qps.")
	o.bindSourceFlags(fs)
	o.Render.bindFlags(fs)
	o.REST.bindFlags(fs)
	fs.StringVar(&o.SOPSWorker, "sops-worker", "",
		"The path of the program that decrypts and encrypts SOPS files; if empty, sops-worker in the folder of this "+
			"program.")
	fs.StringSliceVar(&o.ArgoCDNamespaces, "argocd-namespaces", nil,
		"The namespaces of Argo CD into which cluster Secrets may be written, with the permissions of the service "+
			"account of each KsctlCluster; none if empty.")
	fs.StringSliceVar(&o.KindGroups, "kind-groups", nil,
		"The API groups in which KsctlKinds may serve kinds, such as shops.example.com; none if empty. The controller "+
			"needs the permissions for them: see docs/kinds.md.")
	fs.BoolVar(&o.InsecureKubeConfigTLS, "insecure-kubeconfig-tls", false,
		"Accept kubeconfigs that skip the verification of the server's certificate.")
	fs.StringVar(&o.NodeGroupAddr, "nodegroup-addr", "",
		"The address at which the node groups of KsctlAutoScalers are served to Cluster Autoscaler, such as :9443; "+
			"empty disables them.")
	fs.StringVar(&o.NodeGroupAdvAddr, "nodegroup-adv-addr", "",
		"The advertised host:port under which Cluster Autoscaler reaches --nodegroup-addr.")
	fs.BoolVar(&o.NoRemoteBases, "no-remote-bases", true,
		"Disallow remote bases in kustomizations. They are never fetched; false is invalid.")
	o.ACL.BindFlags(fs)
	o.Watch.BindFlags(fs)
	o.Jitter.BindFlags(fs)
	o.LeaderElection.BindFlags(fs)
	o.Log.BindFlags(fs)
	o.Features.BindFlags(fs)
	fs.Lookup("feature-gates").Usage = "Feature gates as key=value pairs. There are none yet: the flag is that of " +
		"Flux's controllers."
	// By default all ConfigMaps and Secrets that installs reference are watched. Flux's default
	// selector would watch only those with a label.
	if f := fs.Lookup("watch-configs-label-selector"); f != nil {
		f.DefValue = ""
		o.Watch.ConfigsLabelSelector = ""
		f.Usage = "Watch only ConfigMaps and Secrets that match this label selector; " +
			"others that installs reference are read at each reconcile."
	}
}

// bindSourceFlags adds the flags for what is fetched, kept and served.
func (o *Options) bindSourceFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.StoragePath, "storage-path", filepath.Join(os.TempDir(), "ksctl-gitops"),
		"The folder for fetched and served artifacts.")
	fs.StringVar(&o.StorageAddr, "storage-addr", ":9090", "The address at which artifacts of KsctlSources are served.")
	fs.StringVar(&o.StorageAdvAddr, "storage-adv-addr", "",
		"The advertised host for artifacts of KsctlSources and of installs that publish; if empty, the host of "+
			"--storage-addr.")
	fs.StringVar(&o.WebhookAddr, "webhook-addr", "",
		"The address at which webhooks for KsctlSources are received, such as :9292; empty disables them.")
	fs.Int64Var(&o.WebhookBytes, "webhook-max-bytes", webhook.DefaultMaxBytes,
		"The maximum size of the body of a webhook request, in bytes.")
	fs.StringVar(&o.CatalogURL, "catalog-url", "", "The OCI repository with catalog stack versions that are not "+
		"built into the controller, such as oci://registry/repository; each version is at <stack>:<version> below it.")
	fs.BoolVar(&o.CatalogInsecure, "catalog-insecure", false, "Allow plain HTTP for --catalog-url.")
	fs.Int64Var(&o.SourceStorageBytes, "source-storage-bytes", storage.DefaultBytes,
		"The maximum total size on disk of the artifacts of KsctlSources and of installs that publish, in bytes.")
	fs.Int64Var(&o.ArtifactCacheBytes, "artifact-cache-bytes", 1<<30,
		"The maximum size on disk of the cache of unpacked artifacts, in bytes.")
	fs.Int64Var(&o.RenderCacheBytes, "render-cache-bytes", stacks.DefaultCacheBytes,
		"The maximum size in memory of the cache of rendered stacks, which is compressed, in bytes.")
	fs.DurationVar(&o.ArtifactTimeout, "artifact-timeout", artifact.DefaultTimeout,
		"The timeout of one attempt to download an artifact, and of unpacking it.")
	fs.Int64Var(&o.ChartCacheBytes, "chart-cache-bytes", chart.DefaultCacheBytes,
		"The maximum size on disk of the cache of charts from chart repositories, in bytes.")
	fs.Int64Var(&o.ChartIndexBytes, "chart-max-index-bytes", chart.DefaultIndexBytes,
		"The maximum size of the index.yaml of a chart repository, in bytes.")
	bindArtifactLimits(fs, &o.ArtifactLimits, artifact.DefaultLimits())
	bindChartLimits(fs, &o.ChartLimits, stacks.DefaultChartLimits())
	bindGitLimits(fs, &o.GitLimits, git.Limits{}.WithDefaults())
}

// featuresMu guards the feature gates, which fluxcd/pkg/runtime/features keeps in a global
// variable.
var featuresMu sync.Mutex

// Validate returns an error that names the first invalid flag.
func (o *Options) Validate() error {
	if err := setup.ValidateOwnerID(o.OwnerID); err != nil {
		return fmt.Errorf("--owner-id: %w", err)
	}
	switch {
	case o.RuntimeNamespace == "":
		return errors.New("--runtime-namespace is empty: set the namespace in which the controller runs")
	case o.Concurrent < 1:
		return fmt.Errorf("--concurrent %d: must be at least 1", o.Concurrent)
	case o.Jitter.Percentage >= 100:
		return fmt.Errorf("--interval-jitter-percentage %d: must be less than 100", o.Jitter.Percentage)
	case o.SourceStorageBytes < 1:
		return fmt.Errorf("--source-storage-bytes %d: must be at least 1", o.SourceStorageBytes)
	case o.WebhookBytes < 1:
		return fmt.Errorf("--webhook-max-bytes %d: must be at least 1", o.WebhookBytes)
	case o.ArtifactTimeout <= 0:
		return fmt.Errorf("--artifact-timeout %s: must be greater than 0", o.ArtifactTimeout)
	case o.ChartLimits.Bytes < 1:
		return fmt.Errorf("--chart-max-bytes %d: must be at least 1", o.ChartLimits.Bytes)
	case o.ChartLimits.Files < 1:
		return fmt.Errorf("--chart-max-files %d: must be at least 1", o.ChartLimits.Files)
	case !o.NoRemoteBases:
		return errors.New("--no-remote-bases=false: remote bases are not supported; " +
			"copy them into the source and remove the flag")
	}
	if o.PprofAddr != "" {
		// Profiles expose the memory of the process and cost CPU, so only local users may request
		// them.
		host, _, err := net.SplitHostPort(o.PprofAddr)
		if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() {
			return fmt.Errorf("--pprof-addr %q: must be a loopback address, such as 127.0.0.1:6060", o.PprofAddr)
		}
	}
	if err := errors.Join(o.Render.validate(), o.REST.validate()); err != nil {
		return err
	}
	featuresMu.Lock()
	defer featuresMu.Unlock()
	return o.Features.SupportedFeatures(map[string]bool{})
}
