package cluster_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

// componentPIDs returns the pids of the programs of the cluster with a run folder.
func componentPIDs(dir string) []int {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(dir, "*.pid"))
	Expect(err).NotTo(HaveOccurred())
	var pids []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		pid, err := strconv.Atoi(string(data))
		Expect(err).NotTo(HaveOccurred())
		pids = append(pids, pid)
	}
	return pids
}

// alive returns the processes that exist and are not zombies. A zombie has ended and only waits to
// be reaped by its new parent.
func alive(pids []int) func() []int {
	return func() []int {
		var alive []int
		for _, pid := range pids {
			if syscall.Kill(pid, 0) != nil {
				continue
			}
			stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
			if err == nil && strings.Contains(string(stat), ") Z ") {
				continue
			}
			alive = append(alive, pid)
		}
		return alive
	}
}

var _ = Describe("Teardown", func() {
	It("leaves no process and no folder, and is idempotent", func(ctx SpecContext) {
		c, err := cluster.Start(ctx, cluster.Options{})
		Expect(err).NotTo(HaveOccurred())
		pids := componentPIDs(c.Dir())
		Expect(pids).To(HaveLen(5), "etcd, API server, controller manager, scheduler, kwok")
		Expect(alive(pids)()).To(HaveLen(5))

		Expect(c.Stop()).To(Succeed())
		Expect(alive(pids)()).To(BeEmpty())
		Expect(c.Dir()).NotTo(BeADirectory())
		Expect(c.Stop()).To(Succeed())
	})

	It("cleans up after a failed start", func(ctx SpecContext) {
		// A separate TMPDIR, because suites of other packages may start clusters at the same time.
		GinkgoT().Setenv("TMPDIR", GinkgoT().TempDir())
		_, err := cluster.Start(ctx, cluster.Options{CRDPaths: []string{"testdata/missing"}})
		Expect(err).To(MatchError(ContainSubstring("testdata/missing")))
		_, err = cluster.Start(ctx, cluster.Options{APIServerFlags: []string{"--no-such-flag"}})
		Expect(err).To(MatchError(ContainSubstring("unknown flag: --no-such-flag")),
			"the log of the program that failed")
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, err = cluster.Start(cancelled, cluster.Options{})
		Expect(err).To(MatchError(context.Canceled))
		Expect(filepath.Glob(filepath.Join(os.TempDir(), "*", "*"))).To(BeEmpty())
	})

	It("happens without Stop when the suite's process is killed", func(ctx SpecContext) {
		suite := exec.CommandContext(ctx, os.Args[0])
		suite.Env = append(os.Environ(), childVariable+"=1")
		suite.Stderr = GinkgoWriter
		output, err := suite.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(suite.Start()).To(Succeed())
		lines := bufio.NewScanner(output)
		Expect(lines.Scan()).To(BeTrue(), "the process prints its folder")
		dir := lines.Text()
		Expect(dir).To(BeADirectory(), dir)
		pids := componentPIDs(dir)
		Expect(pids).To(HaveLen(4), "etcd, API server, controller manager, scheduler")

		Expect(suite.Process.Kill()).To(Succeed())
		_ = suite.Wait()
		if runtime.GOOS == "linux" {
			Eventually(ctx, alive(pids)).WithTimeout(waitTimeout).
				Should(BeEmpty(), "the kernel kills them with their parent")
		}
		c, err := cluster.Start(ctx, cluster.Options{Nodes: -1, NoControllerManager: true, NoScheduler: true})
		Expect(err).NotTo(HaveOccurred())
		// A concurrent suite may be cleaning up the same run, so Start may return before the end of
		// it.
		Eventually(ctx, alive(pids)).WithTimeout(waitTimeout).
			Should(BeEmpty(), "the next start kills leftover processes")
		Eventually(ctx, func() string { return dir }).WithTimeout(waitTimeout).
			ShouldNot(BeADirectory(), "the next start removes the folder")
		Expect(controlPlane.Dir()).To(BeADirectory(), "the folder of a live run stays")
		Expect(c.Stop()).To(Succeed())
	})
})

var _ = Describe("A restart of the API server", func() {
	DescribeTable("keeps the address, the data and the audit log",
		func(ctx SpecContext, stop func() error) {
			ns, before := namespace(ctx), mark(ctx)
			host := controlPlane.Config().Host
			Expect(controlPlane.Client().Create(ctx, deployment(ns, "early", ""))).To(Succeed())

			Expect(stop()).To(Succeed())
			Eventually(ctx, func() error {
				return controlPlane.Client().List(ctx, &corev1.NodeList{})
			}).WithTimeout(waitTimeout).
				Should(MatchError(ContainSubstring("connection refused")),
					"the first request may fail on the broken connection instead")
			Expect(controlPlane.StopAPIServer()).To(MatchError(ContainSubstring("not running")))
			Expect(controlPlane.StartAPIServer(ctx)).To(Succeed())

			Expect(controlPlane.Config().Host).To(Equal(host))
			late := deployment(ns, "late", "")
			Expect(controlPlane.Client().Create(ctx, late)).To(Succeed())
			Eventually(ctx, available(ctx, late)).WithTimeout(4*waitTimeout).
				Should(BeEquivalentTo(2), "all clients have reconnected, each after up to half a minute")
			early := deployment(ns, "early", "")
			Expect(controlPlane.Client().Get(ctx, client.ObjectKeyFromObject(early), early)).To(Succeed())
			created := since(ctx, before).Where(cluster.ByUser(cluster.AdminUser), cluster.Verb("create"),
				cluster.Resource("deployments"))
			Expect(created).To(HaveLen(2), created.String())
		},
		Entry("when it is stopped", func() error { return controlPlane.StopAPIServer() }),
		Entry("when it crashes", func() error { return controlPlane.KillAPIServer() }),
	)
})
