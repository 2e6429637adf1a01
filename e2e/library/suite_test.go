// Package library_test runs the programs of examples/library on a real control plane, with the
// commands of docs/library.md.
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
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// waitTimeout bounds each wait in these specs; normally a wait takes far less.
const waitTimeout = 5 * time.Minute

var (
	h *harness.Harness
	// programsDir is the folder of the programs of examples/library, built as a separate module.
	programsDir string
)

func TestLibrary(t *testing.T) {
	suite.Run(t, "Library")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	// Flux's CRDs without Flux: the suite writes the status of sources.
	h = framework.Start(ctx, cluster.Options{CRDPaths: []string{"../install/testdata/crds"}})
	programsDir = GinkgoT().TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-C", "../../examples/library", "-buildvcs=false", "-o",
		programsDir+"/", "./...")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
})

// docCommands returns the commands under a heading of docs/library.md, each with its arguments.
func docCommands(heading string) [][]string {
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

// program returns the path of the built program for a "go run" command of the page, and its
// arguments.
func program(command []string) (path string, args []string) {
	GinkgoHelper()
	Expect(len(command)).To(BeNumerically(">=", 5))
	Expect(command[:4]).To(Equal([]string{"go", "-C", "examples/library", "run"}))
	return filepath.Join(programsDir, filepath.Base(command[4])), command[5:]
}
