package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/internal/agent/server"
	"github.com/ksctl/gitops/stacks/state"
)

// options of agent serve.
type options struct {
	listen               string
	metrics, health      string
	logLevel, logFormat  string
	cluster              clusterOptions
	clusters             string
	namespace, storeName string
	storeFolder          string
	noStates             bool
	plaintext            bool
	identity             server.Identity
	server               server.Options
	reflection           bool
}

// clusterOptions are a cluster, as flags or a file say it.
type clusterOptions struct {
	provisioner.Cluster
	// Kubeconfig of the cluster; "": that of the agent.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Provisioner is kwok, ksctl, or the path of a program.
	Provisioner string `json:"provisioner,omitempty"`
	// ProvisionerArgs are its further arguments.
	ProvisionerArgs []string `json:"provisionerArgs,omitempty"`
}

// clustersFile has several clusters.
type clustersFile struct {
	Clusters []clusterOptions `json:"clusters"`
}

// bind adds the flags. Where ksctl's own agent reads a variable of the environment, so does this.
func (o *options) bind(fs *pflag.FlagSet) {
	env := func(name, other string) string { return cmp.Or(os.Getenv(name), other) }
	kind := state.HA
	if os.Getenv("KSCTL_CLUSTER_IS_HA") == "false" {
		kind = state.Managed
	}
	fs.StringVar(&o.listen, "listen", ":8080", "The address that calls are answered at, over gRPC.")
	fs.StringVar(&o.metrics, "metrics-addr", ":8081", "The address that metrics are served at; empty serves none.")
	fs.StringVar(&o.health, "health-addr", ":9440", "The address that /healthz and /readyz are served at; empty serves none.")
	fs.StringVar(&o.logLevel, "log-level", "info", "What is logged: debug, info, warn or error.")
	fs.StringVar(&o.logFormat, "log-format", "json", "How it is logged: json or text.")

	fs.StringVar(&o.cluster.Name, "cluster-name", os.Getenv("KSCTL_CLUSTER_NAME"), "The name of the cluster ($KSCTL_CLUSTER_NAME).")
	fs.StringVar(&o.cluster.Cloud, "cloud", os.Getenv("KSCTL_CLOUD"), "The cloud of its machines ($KSCTL_CLOUD).")
	fs.StringVar(&o.cluster.Type, "cluster-type", kind, "Its type: ha or, from the second release of ksctl on, selfmanaged.")
	fs.StringVar(&o.cluster.Region, "region", os.Getenv("KSCTL_REGION"), "Its region ($KSCTL_REGION).")
	fs.StringVar(&o.cluster.Distribution, "distribution", env("KSCTL_K8S_DISTRO", "k3s"), "What Kubernetes is installed with: k3s or kubeadm ($KSCTL_K8S_DISTRO).")
	fs.StringVar(&o.cluster.Kubeconfig, "kubeconfig", "", "The kubeconfig of the cluster; empty: $KUBECONFIG, else that of the pod.")
	fs.StringVar(&o.cluster.Provisioner, "provisioner", "ksctl", "What makes machines: kwok, ksctl, or the path of a program.")
	fs.StringArrayVar(&o.cluster.ProvisionerArgs, "provisioner-arg", nil, "A further argument of the provisioner; may be given several times.")
	fs.StringVar(&o.clusters, "clusters", "", "A YAML file with several clusters, instead of the flags of one.")

	fs.StringVar(&o.namespace, "namespace", env("POD_NAMESPACE", state.StoreNamespace), "The namespace that the agent keeps its own in ($POD_NAMESPACE).")
	fs.StringVar(&o.storeName, "store-name", "ksctl-agent-operations", "The ConfigMap in that namespace with what was begun.")
	fs.StringVar(&o.storeFolder, "store-folder", "", "A folder for that instead.")
	fs.StringVar(&o.server.StatesNamespace, "states-namespace", state.StoreNamespace, "The namespace of ksctl's own store, which exports are imported into.")
	fs.BoolVar(&o.noStates, "no-states", false, "Import no exports.")
	o.bindAccess(fs)
	o.bindTimes(fs)
}

func (o *options) bindAccess(fs *pflag.FlagSet) {
	fs.StringVar(&o.identity.CertFile, "tls-cert", "", "The agent's certificate, as PEM. It and all files below are read again when they change.")
	fs.StringVar(&o.identity.KeyFile, "tls-key", "", "The key of that.")
	fs.StringVar(&o.identity.ClientCAFile, "client-ca", "", "The authorities, as PEM, whose certificates callers may have.")
	fs.StringVar(&o.identity.TokenFile, "token-file", "", "The tokens that callers may bring, one a line, of 16 bytes at least.")
	fs.BoolVar(&o.plaintext, "plaintext", false, "Listen without TLS, and let anybody call who reaches the agent, as ksctl's own does.")
	fs.BoolVar(&o.reflection, "reflection", false, "Describe the services to those who may call.")
}

func (o *options) bindTimes(fs *pflag.FlagSet) {
	s := &o.server
	fs.DurationVar(&s.DrainWithin, "drain-timeout", 0, "How long one node may take to be drained before an operation fails; 5m when 0.")
	fs.BoolVar(&s.ForceAfterDrain, "force-after-drain-timeout", false, "Delete a machine whose node could not be drained in time, with what is on it.")
	fs.DurationVar(&s.ListWithin, "list-timeout", 0, "How long the provisioner may take to list machines; 30s when 0.")
	fs.DurationVar(&s.CreateWithin, "create-timeout", 0, "How long it may take to make machines; 30m when 0.")
	fs.DurationVar(&s.DeleteWithin, "delete-timeout", 0, "How long it may take to delete machines; 15m when 0.")
	fs.DurationVar(&s.StopWithin, "stop-timeout", 0, "How long it may go on when the agent is to end; 45s when 0.")
	fs.Uint32Var(&s.MaxWorkers, "max-workers", 1000, "The most workers that a cluster may be asked to have.")
}

// validate says which flags do not go together.
func (o *options) validate() error {
	secured := o.identity != server.Identity{}
	switch {
	case o.plaintext && secured:
		return errors.New("--plaintext can't be given with --tls-cert, --tls-key, --client-ca or --token-file: nobody's identity can be told without TLS")
	case !o.plaintext && (o.identity.CertFile == "" || o.identity.KeyFile == ""):
		return errors.New("set --tls-cert and --tls-key, and --client-ca or --token-file or both; or --plaintext, to let anybody call")
	case o.clusters != "" && o.cluster.Name != "":
		return errors.New("--clusters can't be given with --cluster-name")
	case o.clusters == "" && o.cluster.Name == "":
		return errors.New("set --cluster-name, or --clusters")
	}
	return nil
}

// all clusters that are asked for.
func (o *options) all() ([]clusterOptions, error) {
	if o.clusters == "" {
		return []clusterOptions{o.cluster}, nil
	}
	data, err := os.ReadFile(o.clusters)
	if err != nil {
		return nil, fmt.Errorf("--clusters: %w", err)
	}
	var f clustersFile
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, fmt.Errorf("--clusters: %s: %w", o.clusters, err)
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		c.Type, c.Distribution = cmp.Or(c.Type, state.HA), cmp.Or(c.Distribution, "k3s")
		c.Provisioner = cmp.Or(c.Provisioner, o.cluster.Provisioner)
		c.Kubeconfig = cmp.Or(c.Kubeconfig, o.cluster.Kubeconfig)
	}
	return f.Clusters, nil
}

// command is what starts a cluster's provisioner.
func (c clusterOptions) command() ([]string, error) {
	switch c.Provisioner {
	case "kwok", "ksctl":
	default:
		if !strings.Contains(c.Provisioner, "/") {
			return nil, fmt.Errorf("provisioner %q: want kwok, ksctl, or the path of a program", c.Provisioner)
		}
		return append([]string{c.Provisioner}, c.ProvisionerArgs...), nil
	}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out := []string{own, "provision", c.Provisioner}
	if c.Provisioner == "kwok" && c.Kubeconfig != "" {
		out = append(out, "--kubeconfig="+c.Kubeconfig)
	}
	return slices.Concat(out, c.ProvisionerArgs), nil
}
