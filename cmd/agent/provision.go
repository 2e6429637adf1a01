package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/internal/agent/provisioner/ksctl"
	"github.com/ksctl/gitops/internal/agent/provisioner/kwok"
)

// newProvisionCommand has the programs that make machines.
func newProvisionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provision",
		Short: "Do what one request asks for, which is read as JSON; agent serve starts it",
	}
	cmd.AddCommand(newKwokCommand(), newKsctlCommand())
	return cmd
}

func newKwokCommand() *cobra.Command {
	p := kwok.Provisioner{Clock: clock.RealClock{}}
	var kubeconfig string
	var noProviderID bool
	cmd := &cobra.Command{
		Use:   "kwok",
		Short: "Make fake nodes that kwok plays, for demonstrations and tests",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clusterConfig(kubeconfig)
			if err != nil {
				return err
			}
			if p.Client, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
			if noProviderID {
				p.ProviderID = kwok.None
			}
			return provisioner.Serve(cmd.Context(), os.Stdin, os.Stdout, &p)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "The kubeconfig of the cluster; empty: $KUBECONFIG, else that of the pod.")
	cmd.Flags().StringVar(&p.Config, "config", "", "A JSON file with sizes of machines and what goes wrong; it is read at each call.")
	cmd.Flags().BoolVar(&noProviderID, "no-provider-id", false, "Leave spec.providerID empty, as kubeadm does, and not k3s://<name>.")
	return cmd
}

func newKsctlCommand() *cobra.Command {
	var p ksctl.Provisioner
	cmd := &cobra.Command{
		Use:   "ksctl",
		Short: "Make and delete machines with ksctl's command line",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return provisioner.Serve(cmd.Context(), os.Stdin, os.Stdout, &p)
		},
	}
	p.BindFlags(cmd.Flags())
	return cmd
}

// clusterConfig is how to reach a cluster.
func clusterConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		kubeconfig = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	// With neither it is that of the pod.
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "ksctl-agent"
	config.QPS = -1 // the API server's own flow control is enough
	config.Timeout = 30 * time.Second
	return config, nil
}
