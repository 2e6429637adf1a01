package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/internal/agent/server"
	"github.com/ksctl/gitops/stacks/state"
)

// options are the flags of agent serve.
type options struct {
	listen               string
	metrics, health      string
	logLevel, logFormat  string
	cluster              clusterOptions
	clustersFile         string
	namespace, storeName string
	storeDir             string
	noStates             bool
	plaintext            bool
	identity             server.Identity
	server               server.Options
	serve                server.ServeOptions
}

// clusterOptions configures one cluster. It is read from flags or from the file of --clusters.
type clusterOptions struct {
	provisioner.Cluster
	// Kubeconfig is the path of the cluster's kubeconfig; "" uses the agent's own.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Provisioner is kwok, ksctl, or the path of a program.
	Provisioner string `json:"provisioner,omitempty"`
	// ProvisionerArgs are appended to the provisioner's command line.
	ProvisionerArgs []string `json:"provisionerArgs,omitempty"`
}

// bindFlags registers the flags. Their defaults come from the same environment variables that
// ksctl's own agent reads.
func (o *options) bindFlags(fs *pflag.FlagSet) {
	envOr := func(name, fallback string) string { return cmp.Or(os.Getenv(name), fallback) }
	clusterType := state.HA
	if os.Getenv("KSCTL_CLUSTER_IS_HA") == "false" {
		clusterType = state.Managed
	}
	fs.StringVar(&o.listen, "listen", ":8080", "The address of the gRPC server.")
	fs.StringVar(&o.metrics, "metrics-addr", ":8081", "The address that metrics are served at; empty disables them.")
	fs.StringVar(&o.health, "health-addr", ":9440",
		"The address that /healthz and /readyz are served at; empty disables them.")
	fs.StringVar(&o.logLevel, "log-level", "info", "The log level: debug, info, warn or error.")
	fs.StringVar(&o.logFormat, "log-format", "json", "The log format: json or text.")

	fs.StringVar(&o.cluster.Name, "cluster-name", os.Getenv("KSCTL_CLUSTER_NAME"),
		"The name of the cluster ($KSCTL_CLUSTER_NAME).")
	fs.StringVar(&o.cluster.Cloud, "cloud", os.Getenv("KSCTL_CLOUD"),
		"The cloud provider of the cluster ($KSCTL_CLOUD).")
	fs.StringVar(&o.cluster.Type, "cluster-type", clusterType,
		"The type of the cluster: ha or, from the second release of ksctl on, selfmanaged.")
	fs.StringVar(&o.cluster.Region, "region", os.Getenv("KSCTL_REGION"), "The region of the cluster ($KSCTL_REGION).")
	fs.StringVar(&o.cluster.Distribution, "distribution", envOr("KSCTL_K8S_DISTRO", "k3s"),
		"The Kubernetes distribution of the cluster: k3s or kubeadm ($KSCTL_K8S_DISTRO).")
	fs.StringVar(&o.cluster.Kubeconfig, "kubeconfig", "",
		"The kubeconfig of the cluster; if empty, $KUBECONFIG or else the pod's service account is used.")
	fs.StringVar(&o.cluster.Provisioner, "provisioner", "ksctl",
		"The provisioner that creates and deletes machines: kwok, ksctl, or the path of a program.")
	fs.StringArrayVar(&o.cluster.ProvisionerArgs, "provisioner-arg", nil,
		"An additional argument of the provisioner; may be repeated.")
	fs.StringVar(&o.clustersFile, "clusters", "",
		"A YAML file that lists several clusters; replaces the flags of a single cluster.")

	fs.StringVar(&o.namespace, "namespace", envOr("POD_NAMESPACE", state.StoreNamespace),
		"The namespace of the agent's own ConfigMap ($POD_NAMESPACE).")
	fs.StringVar(&o.storeName, "store-name", "ksctl-agent-operations",
		"The ConfigMap in --namespace that operations are recorded in.")
	fs.StringVar(&o.storeDir, "store-folder", "", "A folder that operations are recorded in, instead of a ConfigMap.")
	fs.StringVar(&o.server.StatesNamespace, "states-namespace", state.StoreNamespace,
		"The namespace of ksctl's state store, which exports are imported into.")
	fs.BoolVar(&o.noStates, "no-states", false, "Disable the import of ksctl exports.")
	o.bindSecurityFlags(fs)
	o.bindLimitFlags(fs)
}

func (o *options) bindSecurityFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.identity.CertFile, "tls-cert", "",
		"The agent's TLS certificate, as PEM. The agent reloads this and the files below when they change.")
	fs.StringVar(&o.identity.KeyFile, "tls-key", "", "The private key of --tls-cert, as PEM.")
	fs.StringVar(&o.identity.ClientCAFile, "client-ca", "",
		"The CA certificates, as PEM, that client certificates are verified against.")
	fs.StringVar(&o.identity.TokenFile, "token-file", "",
		"A file with accepted bearer tokens, one per line, of at least 16 bytes each.")
	fs.BoolVar(&o.plaintext, "plaintext", false,
		"Listen without TLS and accept every caller, as ksctl's own agent does.")
	fs.BoolVar(&o.serve.Reflection, "reflection", false, "Serve gRPC reflection to authenticated callers.")
}

func (o *options) bindLimitFlags(fs *pflag.FlagSet) {
	s := &o.server
	fs.DurationVar(&s.DrainTimeout, "drain-timeout", 0,
		"The time limit for draining one node, after which the operation fails; 0 means 5m.")
	fs.BoolVar(&s.ForceAfterDrain, "force-after-drain-timeout", false,
		"Delete a machine even if its node was not drained within --drain-timeout; the remaining pods are lost.")
	fs.DurationVar(&s.ListTimeout, "list-timeout", 0,
		"The time limit for the provisioner to list machines; 0 means 30s.")
	fs.DurationVar(&s.CreateTimeout, "create-timeout", 0,
		"The time limit for the provisioner to create machines; 0 means 30m.")
	fs.DurationVar(&s.DeleteTimeout, "delete-timeout", 0,
		"The time limit for the provisioner to delete machines; 0 means 15m.")
	fs.DurationVar(&s.StopTimeout, "stop-timeout", 0,
		"How long a running provisioner may continue when the agent shuts down; 0 means 45s.")
	fs.Uint32Var(&s.MaxWorkers, "max-workers", 1000,
		"The maximum number of workers that a caller may request for a cluster.")
}

// validate returns an error if flags are missing or exclude each other.
func (o *options) validate() error {
	hasIdentity := o.identity != server.Identity{}
	switch {
	case o.plaintext && hasIdentity:
		return errors.New("--plaintext can't be combined with --tls-cert, --tls-key, " +
			"--client-ca or --token-file: callers can't be authenticated without TLS")
	case !o.plaintext && (o.identity.CertFile == "" || o.identity.KeyFile == ""):
		return errors.New("set --tls-cert and --tls-key, and --client-ca or --token-file or both; " +
			"or set --plaintext to accept every caller")
	case o.clustersFile != "" && o.cluster.Name != "":
		return errors.New("--clusters can't be combined with --cluster-name")
	case o.clustersFile == "" && o.cluster.Name == "":
		return errors.New("set --cluster-name or --clusters")
	}
	return nil
}

// loadClusters returns the cluster of the flags, or those of the file of --clusters. Clusters of
// the file take the provisioner and the kubeconfig of the flags as defaults.
func (o *options) loadClusters() ([]clusterOptions, error) {
	if o.clustersFile == "" {
		return []clusterOptions{o.cluster}, nil
	}
	data, err := os.ReadFile(o.clustersFile)
	if err != nil {
		return nil, fmt.Errorf("--clusters: %w", err)
	}
	var f struct {
		Clusters []clusterOptions `json:"clusters"`
	}
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, fmt.Errorf("--clusters: %s: %w", o.clustersFile, err)
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		c.Type, c.Distribution = cmp.Or(c.Type, state.HA), cmp.Or(c.Distribution, "k3s")
		c.Provisioner = cmp.Or(c.Provisioner, o.cluster.Provisioner)
		c.Kubeconfig = cmp.Or(c.Kubeconfig, o.cluster.Kubeconfig)
	}
	return f.Clusters, nil
}

// provisionerCommand returns the command line that starts the provisioner of the cluster. kwok and
// ksctl are subcommands of this program.
func (c clusterOptions) provisionerCommand() ([]string, error) {
	out := []string{c.Provisioner}
	switch {
	case c.Provisioner == "kwok" || c.Provisioner == "ksctl":
		executable, err := os.Executable()
		if err != nil {
			return nil, err
		}
		out = []string{executable, "provision", c.Provisioner}
	case !strings.Contains(c.Provisioner, "/"):
		return nil, fmt.Errorf("provisioner %q: want kwok, ksctl, or the path of a program", c.Provisioner)
	}
	if c.Provisioner == "kwok" && c.Kubeconfig != "" {
		out = append(out, "--kubeconfig="+c.Kubeconfig)
	}
	return append(out, c.ProvisionerArgs...), nil
}
