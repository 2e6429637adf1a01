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

// children returns the pids of the programs of a cluster by its folder.
func children(dir string) []int {
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

// running returns which of the processes are there and aren't zombies, which
// only wait for whoever adopted them.
func running(pids []int) func() []int {
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
	It("leaves neither process nor folder, and can be asked twice", func(ctx SpecContext) {
		c, err := cluster.Start(ctx, cluster.Options{})
		Expect(err).NotTo(HaveOccurred())
		pids := children(c.Dir())
		Expect(pids).To(HaveLen(5), "etcd, API server, controller manager, scheduler, kwok")
		Expect(running(pids)()).To(HaveLen(5))

		Expect(c.Stop()).To(Succeed())
		Expect(running(pids)()).To(BeEmpty())
		Expect(c.Dir()).NotTo(BeADirectory())
		Expect(c.Stop()).To(Succeed())
	})

	It("leaves nothing of a start that fails half way", func(ctx SpecContext) {
		// A place of its own: suites of other packages may be starting too.
		GinkgoT().Setenv("TMPDIR", GinkgoT().TempDir())
		_, err := cluster.Start(ctx, cluster.Options{CRDPaths: []string{"testdata/missing"}})
		Expect(err).To(MatchError(ContainSubstring("testdata/missing")))
		_, err = cluster.Start(ctx, cluster.Options{APIServerFlags: []string{"--no-such-flag"}})
		Expect(err).To(MatchError(ContainSubstring("unknown flag: --no-such-flag")), "the log of the program that failed")
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, err = cluster.Start(cancelled, cluster.Options{})
		Expect(err).To(MatchError(context.Canceled))
		Expect(filepath.Glob(filepath.Join(os.TempDir(), "*", "*"))).To(BeEmpty())
	})

	It("happens by itself when the suite's process is killed", func(ctx SpecContext) {
		suite := exec.CommandContext(ctx, os.Args[0])
		suite.Env = append(os.Environ(), childVariable+"=1")
		suite.Stderr = GinkgoWriter
		output, err := suite.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(suite.Start()).To(Succeed())
		lines := bufio.NewScanner(output)
		Expect(lines.Scan()).To(BeTrue(), "the process says which folder it uses")
		dir := lines.Text()
		Expect(dir).To(BeADirectory(), dir)
		pids := children(dir)
		Expect(pids).To(HaveLen(4), "etcd, API server, controller manager, scheduler")

		Expect(suite.Process.Kill()).To(Succeed())
		_ = suite.Wait()
		if runtime.GOOS == "linux" {
			Eventually(ctx, running(pids)).WithTimeout(soon).Should(BeEmpty(), "the kernel kills them with their parent")
		}
		c, err := cluster.Start(ctx, cluster.Options{Nodes: -1, NoControllerManager: true, NoScheduler: true})
		Expect(err).NotTo(HaveOccurred())
		// A suite beside this one may have begun with it.
		Eventually(ctx, running(pids)).WithTimeout(soon).Should(BeEmpty(), "the next start ends what is left")
		Eventually(ctx, func() string { return dir }).WithTimeout(soon).ShouldNot(BeADirectory(), "and removes the folder")
		Expect(plane.Dir()).To(BeADirectory(), "but not the one of a run that lives")
		Expect(c.Stop()).To(Succeed())
	})
})

var _ = Describe("A restart of the API server", func() {
	DescribeTable("keeps address, data and audit log",
		func(ctx SpecContext, stop func() error) {
			ns, before := namespace(ctx), mark(ctx)
			host := plane.Config().Host
			Expect(plane.Client().Create(ctx, deployment(ns, "early", ""))).To(Succeed())

			Expect(stop()).To(Succeed())
			Eventually(ctx, func() error { return plane.Client().List(ctx, &corev1.NodeList{}) }).WithTimeout(soon).
				Should(MatchError(ContainSubstring("connection refused")), "the first may meet the connection that ended")
			Expect(plane.StopAPIServer()).To(MatchError(ContainSubstring("not running")))
			Expect(plane.StartAPIServer(ctx)).To(Succeed())

			Expect(plane.Config().Host).To(Equal(host))
			late := deployment(ns, "late", "")
			Expect(plane.Client().Create(ctx, late)).To(Succeed())
			Eventually(ctx, available(ctx, late)).WithTimeout(4*soon).Should(BeEquivalentTo(2), "its clients have come back, each after up to half a minute")
			early := deployment(ns, "early", "")
			Expect(plane.Client().Get(ctx, client.ObjectKeyFromObject(early), early)).To(Succeed())
			created := since(ctx, before).Where(cluster.By(cluster.AdminUser), cluster.Verb("create"), cluster.Resource("deployments"))
			Expect(created).To(HaveLen(2), created.String())
		},
		Entry("when it is stopped", func() error { return plane.StopAPIServer() }),
		Entry("when it crashes", func() error { return plane.KillAPIServer() }),
	)
})
