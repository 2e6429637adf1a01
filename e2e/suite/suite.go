// Package suite runs the specs of a Ginkgo suite the same way everywhere: with a bounded
// number of attempts, timeouts that a loaded machine can meet, and a report for CI.
package suite

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/internal/testrun/layout"
)

// timeout is how long an Eventually without a timeout of its own waits. Gomega's default of
// one second is too short for a machine that also compiles.
const timeout = 2 * time.Minute

// Safety decorates specs about ownership and data loss. One failure of them is a finding,
// not chance: they have one attempt whatever [layout.AttemptsVariable] allows.
var Safety = []any{Label("safety"), MustPassRepeatedly(1)}

// Long is whether the long ring runs: specs that repeat something do so often.
func Long() bool { return os.Getenv(layout.LongVariable) == "1" }

// Repeat marks specs that repeat something, and are worth more of it in the long ring.
var Repeat = Label("repeat")

// Run runs the specs of the calling package.
func Run(t *testing.T, name string) {
	t.Helper()
	attempts, err := layout.Attempts()
	if err != nil {
		t.Fatal(err)
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(timeout)
	config, reporter := GinkgoConfiguration()
	config.FlakeAttempts = attempts
	if folder := os.Getenv(layout.ReportsVariable); folder != "" {
		files, err := layout.WorkingSuite(folder)
		if err != nil {
			t.Fatal(err)
		}
		reporter.JSONReport, reporter.JUnitReport = files.JSON(), files.JUnit()
		t.Setenv(cluster.LogsVariable, files.Logs())
		ReportAfterSuite("logs of failed specs", func(r Report) { Expect(writeLogs(files.Logs(), r)).To(Succeed()) })
	}
	ReportAfterSuite("no attempt panicked", func(r Report) { Expect(panicked(r)).To(BeEmpty(), "panics are not retried") })
	RunSpecs(t, name, config, reporter)
}

// panicked returns the specs that were repeated after a panic.
func panicked(r Report) []string {
	var names []string
	for _, s := range r.SpecReports {
		for _, f := range s.AdditionalFailures {
			if f.State == types.SpecStatePanicked {
				names = append(names, s.FullText())
				break
			}
		}
	}
	return names
}
