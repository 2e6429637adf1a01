package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner/kwok"
)

// fakeKsctl is a program that behaves like the ksctl command.
const fakeKsctl = "../../internal/agent/provisioner/ksctl/testdata/ksctl"

var _ = Describe("The agent with the ksctl command line", func() {
	It("passes the desired number of workers to ksctl, and manages their nodes", func(ctx SpecContext) {
		folder := GinkgoT().TempDir()
		name := fmt.Sprintf("c%d", clusters.Add(1))
		state := filepath.Join(folder, "states", "aws", "ha", name+" us-east-1", "state.json")
		calls, hangs := filepath.Join(folder, "calls"), filepath.Join(folder, "hangs")
		Expect(os.MkdirAll(filepath.Dir(state), 0o750)).To(Succeed())
		Expect(os.WriteFile(state, []byte(`{"cluster_type":"ha","region":"us-east-1","cluster_name":"`+name+
			`","cloud_provider":"aws","cloud_infrastructure_state":{"aws":{"info_worker_planes":{"names":null}}}}`),
			0o640)).To(Succeed())
		program, err := filepath.Abs(fakeKsctl)
		Expect(err).NotTo(HaveOccurred())
		wrapper := filepath.Join(folder, "ksctl")
		Expect(os.WriteFile(wrapper, []byte("#!/bin/sh\nexport KSCTL_STATE='"+state+"' KSCTL_CALLS='"+calls+
			"'\n[ ! -e '"+hangs+"' ] || export KSCTL_HANGS=1\nexec '"+program+"' \"$@\"\n"), 0o700)).To(Succeed())
		r := &testCluster{name: name, folder: folder, config: "--ksctl=" + wrapper}
		start := func(ctx context.Context) {
			GinkgoHelper()
			r.agent = startProcess(ctx, folder, "--plaintext", "--cluster-name="+name, "--cloud=aws",
				"--region=us-east-1", "--provisioner=ksctl",
				"--provisioner-arg="+r.config, "--provisioner-arg=--states="+filepath.Join(folder, "states"))
			DeferCleanup(r.agent.kill)
			r.agent.awaitReady(ctx)
		}
		start(ctx)
		Expect(r.run(ctx, "up", 0, 3)).To(HaveSucceeded(), r.agent.logs())
		for i := range 3 {
			create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-vm-wp-%d-abc%d0", name, i, i),
				Labels: map[string]string{kwok.ClusterLabel: name}}})
		}
		DeferCleanup(func(ctx SpecContext) error {
			return plane.Client().DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{kwok.ClusterLabel: name})
		})
		res, err := r.workers().List(ctx, &agentpb.ListRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(res.GetWorkers()).To(HaveLen(3))
		Eventually(ctx, func() (string, error) {
			res, err := r.workers().List(ctx, &agentpb.ListRequest{})
			if len(res.GetWorkers()) != 3 {
				return "", err
			}
			return res.GetWorkers()[2].GetNode(), err
		}).WithTimeout(soon).Should(Equal(name + "-vm-wp-2-abc20"))
		Expect(r.run(ctx, "down", 3, 2)).To(HaveSucceeded(), r.agent.logs())
		Expect(r.indexes(ctx)).To(ConsistOf(0, 1))

		Expect(os.WriteFile(hangs, nil, 0o600)).To(Succeed())
		r.begin(ctx, "killed", 2, 4)
		commands := func() string {
			data, _ := os.ReadFile(calls)
			return strings.TrimSpace(string(data))
		}
		Eventually(ctx, commands).WithTimeout(soon).Should(ContainSubstring("--noWP 4"))
		r.agent.kill()
		Eventually(ctx, r.provisioners).WithTimeout(soon).Should(BeEmpty())
		Expect(os.Remove(hangs)).To(Succeed())
		start(ctx)
		Expect(r.await(ctx, "killed", 2, 4)).To(HaveSucceeded(), r.agent.logs())
		const with = " -s store-local --noWP "
		Expect(strings.Split(commands(), "\n")).To(Equal([]string{
			"create-cluster ha-aws add-nodes -n " + name + " -r us-east-1" + with +
				"3 --bootstrap k3s --nodeSizeWP medium",
			"delete-cluster ha-aws delete-nodes -n " + name + " -r us-east-1" + with + "2 --bootstrap k3s",
			"create-cluster ha-aws add-nodes -n " + name + " -r us-east-1" + with +
				"4 --bootstrap k3s --nodeSizeWP medium",
			"create-cluster ha-aws add-nodes -n " + name + " -r us-east-1" + with +
				"4 --bootstrap k3s --nodeSizeWP medium",
		}))
	}, SpecTimeout(15*time.Minute))
})
