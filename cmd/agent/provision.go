package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/internal/agent/provisioner/ksctl"
	"github.com/ksctl/gitops/internal/agent/provisioner/kwok"
)

// newProvisionCommand returns the command with the built-in provisioners as subcommands.
func newProvisionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provision",
		Short: "Run one provisioner request, read as JSON from standard input; started by agent serve",
	}
	cmd.AddCommand(newKwokCommand(), newKsctlCommand())
	return cmd
}

func newKwokCommand() *cobra.Command {
	var p kwok.Provisioner
	var kubeconfig string
	var noProviderID bool
	cmd := &cobra.Command{
		Use:   "kwok",
		Short: "Create and delete fake nodes that kwok simulates, for demonstrations and tests",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if p.Client, err = newClient(kubeconfig); err != nil {
				return err
			}
			if noProviderID {
				p.ProviderID = kwok.NoProviderID
			}
			return provisioner.Serve(cmd.Context(), os.Stdin, os.Stdout, &p)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "",
		"The kubeconfig of the cluster; if empty, $KUBECONFIG or else the pod's service account is used.")
	cmd.Flags().StringVar(&p.ConfigFile, "config", "",
		"A JSON file with machine sizes and faults to inject; read at each request.")
	cmd.Flags().BoolVar(&noProviderID, "no-provider-id", false,
		"Leave spec.providerID empty, as kubeadm does, instead of k3s://<name>.")
	return cmd
}

func newKsctlCommand() *cobra.Command {
	var p ksctl.Provisioner
	cmd := &cobra.Command{
		Use:   "ksctl",
		Short: "Create and delete machines with ksctl's command line",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return provisioner.Serve(cmd.Context(), os.Stdin, os.Stdout, &p)
		},
	}
	p.BindFlags(cmd.Flags())
	return cmd
}

// newClient returns a client of the cluster of a kubeconfig: see restConfig.
func newClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// restConfig returns a client configuration for the cluster of a kubeconfig; "" means $KUBECONFIG,
// or the pod's service account if that is unset.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		kubeconfig = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	// An empty path selects the in-cluster configuration.
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "ksctl-agent"
	config.QPS = -1 // no client-side limit: API Priority and Fairness is enough
	config.Timeout = 30 * time.Second
	return config, nil
}
