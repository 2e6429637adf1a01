// Package library_test runs the programs of examples/library on a real control
// plane, as docs/library.md says.
package library_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon is how long anything in these specs may take; it takes far less.
const soon = 5 * time.Minute

var (
	h *harness.Harness
	// programs has those of examples/library, built as somebody else's module.
	programs string
)

func TestLibrary(t *testing.T) {
	suite.Run(t, "Library")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	// Flux's kinds, without Flux: the suite says what a source has.
	h, err = harness.Start(ctx, cluster.Options{CRDPaths: []string{"../install/testdata/crds"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	programs = GinkgoT().TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-C", "../../examples/library", "-buildvcs=false", "-o", programs+"/", "./...")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
})

// page are the commands of docs/library.md under a heading, each with its arguments.
func page(heading string) [][]string {
	GinkgoHelper()
	text, err := os.ReadFile("../../docs/library.md")
	Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	Expect(found).To(BeTrue(), "no heading %q", heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var out [][]string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		for line := range strings.Lines(block[1]) {
			out = append(out, strings.Fields(line))
		}
	}
	return out
}

// program is the path of the one that a command of the page runs, and its arguments.
func program(command []string) (path string, args []string) {
	GinkgoHelper()
	Expect(len(command)).To(BeNumerically(">=", 5))
	Expect(command[:4]).To(Equal([]string{"go", "-C", "examples/library", "run"}))
	return filepath.Join(programs, filepath.Base(command[4])), command[5:]
}
