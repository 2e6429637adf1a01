// Package upgrade_test starts the controller over objects that an earlier version stored, and
// checks that it recognizes all of them: it writes nothing but the answers to requests, and
// accepts the digests that were to be approved.
//
// The objects are in testdata/stored, as that version's API server had them in etcd. With
// KSCTL_GOLDEN_WRITE=1 the suite stores them anew from scenario_test.go.
package upgrade_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/internal/golden"
)

// soon bounds every wait; none takes more than a few seconds.
const soon = 4 * time.Minute

// Namespace of the stored objects, and the one that an install created.
const (
	ns        = "stored"
	createdNS = "stored-apps"
)

var (
	h     *harness.Harness
	git   *gitserver.Server
	flags []string

	// addresses replace the ports that are free in this run.
	addresses *strings.Replacer
	// placeholders replace them in what is stored.
	placeholders *strings.Replacer
)

func TestUpgrade(t *testing.T) {
	suite.Run(t, "Upgrade")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true, Audit: true,
		APIServerFlags: []string{"--storage-media-type=application/json"}})
	git = framework.GitServer()
	worker, err := h.Build(ctx, programs.SOPSWorker)
	Expect(err).NotTo(HaveOccurred())
	storage, err := cluster.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	flags = []string{"--sops-worker=" + worker, "--storage-addr=" + storage, "--storage-adv-addr=" + storage}
	pairs := []string{h.ArtifactServer.URL(), "http://artifacts.invalid", git.URL(), "http://git.invalid",
		"http://" + storage, "http://storage.invalid"}
	placeholders = strings.NewReplacer(pairs...)
	for i := 0; i < len(pairs); i += 2 {
		pairs[i], pairs[i+1] = pairs[i+1], pairs[i]
	}
	addresses = strings.NewReplacer(pairs...)

	if os.Getenv(golden.WriteVariable) != "" {
		record(ctx)
	} else {
		restore(ctx)
	}
}, NodeTimeout(20*time.Minute))

func start() *harness.Controller {
	GinkgoHelper()
	c, err := h.StartController(flags...)
	Expect(err).NotTo(HaveOccurred())
	return c
}

func get(ctx context.Context, o client.Object) error {
	return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
}

// change patches an object as a person would.
func change(ctx context.Context, o client.Object, patch string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(patch)))).
		To(Succeed())
}
