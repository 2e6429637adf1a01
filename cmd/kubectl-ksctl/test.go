package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func newTestCommand() *cobra.Command {
	var cluster clusterFlags
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "test INSTALL",
		Short: "Run the test hooks of an install's charts in the cluster, and wait for the result",
		Long: "Run the test hooks of an install's charts in the cluster, and wait for the result.\n\n" +
			"The command sets the annotation " + appsv1.TestAnnotation +
			" of the KsctlInstall. The controller runs the " +
			"hooks with the permissions of the install's account, once for each value. Their Jobs and Pods stay for " +
			"their logs until the annotation is removed, unless their hook-delete-policy says otherwise.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := cluster.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			message, err := runTests(ctx, c, client.ObjectKey{Namespace: namespace, Name: args[0]},
				strconv.FormatInt(time.Now().Unix(), 10))
			if message != "" {
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), message)
			}
			return err
		},
	}
	cluster.addFlags(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for the result")
	return cmd
}

// testPollInterval is the time between two looks at the result.
const testPollInterval = 500 * time.Millisecond

// runTests requests the tests of an install, and waits for the result. It returns the message of
// the condition, and errReported if a test failed.
func runTests(ctx context.Context, c client.Client, key client.ObjectKey, token string) (string, error) {
	in := &appsv1.KsctlInstall{}
	if err := c.Get(ctx, key, in); err != nil {
		return "", err
	}
	switch publish := in.Spec.Publish; {
	case in.Spec.ClusterSelector != nil:
		return "", fmt.Errorf("KsctlInstall %s is for many clusters: test one of its installs, which "+
			"status.clusters lists",
			key)
	case publish != nil && publish.Mode == appsv1.PublishOnly:
		return "", fmt.Errorf("KsctlInstall %s only publishes: nothing is installed that could be tested", key)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.TestAnnotation, token)
	if err := c.Patch(ctx, in, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return "", err
	}
	for {
		result := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.TestedCondition)
		if result != nil && in.Status.LastHandledTest == token {
			if result.Status != metav1.ConditionTrue {
				return result.Message, errReported
			}
			return result.Message, nil
		}
		select {
		case <-ctx.Done():
			return "", unfinishedError(in)
		case <-time.After(testPollInterval):
		}
		if err := c.Get(ctx, key, in); err != nil && ctx.Err() == nil {
			return "", err
		}
	}
}

// unfinishedError says how far the tests of an install are.
func unfinishedError(in *appsv1.KsctlInstall) error {
	name := in.Namespace + "/" + in.Name
	if result := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.TestedCondition); result != nil &&
		result.Status == metav1.ConditionUnknown {
		return fmt.Errorf("KsctlInstall %s: the tests have not ended: %s", name, result.Message)
	}
	if ready := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition); ready != nil &&
		ready.Status != metav1.ConditionTrue {
		return fmt.Errorf("KsctlInstall %s: the tests have not started: %s", name, ready.Message)
	}
	return errors.New("KsctlInstall " + name + ": the tests have not started: see the log of the controller")
}
