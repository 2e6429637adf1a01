// Package suite runs Ginkgo suites with common settings: a bounded number of attempts, timeouts
// that are long enough for a loaded machine, and a report for CI.
package suite

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/internal/testrun/layout"
)

// timeout is the default timeout of Eventually. Gomega's default of one second is too short for a
// machine that also compiles.
const timeout = 2 * time.Minute

// Safety decorates specs about ownership and data loss. Each failure must be investigated, so they
// have one attempt, regardless of [layout.AttemptsVariable].
var Safety = []any{Label("safety"), MustPassRepeatedly(1)}

// Long returns true in a run of make test-long. Specs then repeat more often.
func Long() bool { return os.Getenv(layout.LongVariable) == "1" }

// Repeat labels specs that repeat more often in make test-long.
var Repeat = Label("repeat")

var filtered bool

// Filtered returns true if this run has only some of the specs of the suite, such as with
// -ginkgo.focus or -ginkgo.label-filter.
func Filtered() bool { return filtered }

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
		if err := recordStart(files, t.Name()); err != nil {
			t.Fatal(err)
		}
		reporter.JSONReport, reporter.JUnitReport = files.JSON, files.JUnit
		t.Setenv(cluster.LogsVariable, files.Logs)
		ReportAfterSuite("logs of failed specs", func(r Report) { Expect(writeLogs(files.Logs, r)).To(Succeed()) })
	}
	ReportBeforeSuite(func(r Report) { filtered = r.PreRunStats.SpecsThatWillRun < r.PreRunStats.TotalSpecs })
	ReportAfterSuite("no attempt panicked", func(r Report) {
		Expect(panicked(r)).To(BeEmpty(), "panics are not retried")
	})
	RunSpecs(t, name, config, reporter)
}

// recordStart records the start of a suite in a file. A second start in the same run is an error:
// Ginkgo repeats failed specs, and a crashed suite is not repeated.
func recordStart(files layout.Suite, test string) error {
	file, err := os.OpenFile(files.Started, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return errors.New("the suite has already run and is not repeated: Ginkgo repeats failed specs itself")
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(test)
	return errors.Join(err, file.Close())
}

// panicked returns the names of specs that were repeated after a panic.
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
