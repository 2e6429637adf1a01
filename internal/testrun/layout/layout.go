// Package layout defines the environment variables and file names that testrun shares with the test
// suites that it runs.
package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	// AttemptsVariable is the environment variable with the number of attempts of a failing
	// spec; 1 if unset.
	AttemptsVariable = "KSCTL_TEST_ATTEMPTS"
	// ReportsVariable is the environment variable with the folder for the reports of Ginkgo
	// suites; see [Suite]. Suites write no reports if it is unset.
	ReportsVariable = "KSCTL_TEST_REPORTS"
	// LongVariable is the environment variable that make test-long sets to 1.
	LongVariable = "KSCTL_TEST_LONG"
	// ProgramsVariable is the environment variable with the folder of the built programs of cmd/.
	// Suites build the programs that they need if it is unset.
	ProgramsVariable = "KSCTL_TEST_PROGRAMS"
)

// Attempts returns the value of [AttemptsVariable].
func Attempts() (int, error) {
	value := os.Getenv(AttemptsVariable)
	if value == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s is %q; set a number of 1 or more", AttemptsVariable, value)
	}
	return n, nil
}

// Suite holds the paths of the reports of one Ginkgo suite.
type Suite struct {
	// JSON is Ginkgo's own report, and JUnit the report for CI servers.
	JSON, JUnit string
	// Logs is a folder. After a failure or a flake, it has the logs of the programs and of the
	// failed specs.
	Logs string
	// Started is a file with the name of the Go test that runs the suite. The suite creates the
	// file when it starts, so it exists even after a crash.
	Started string
}

// WorkingSuite returns the reports of the suite in the working directory. reports is the folder of
// all reports.
func WorkingSuite(reports string) (Suite, error) {
	wd, err := os.Getwd()
	if err != nil {
		return Suite{}, err
	}
	for root := wd; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			pkg, err := filepath.Rel(root, wd)
			return SuiteOf(reports, filepath.ToSlash(pkg)), err
		}
		if root == filepath.Dir(root) {
			return Suite{}, fmt.Errorf("no go.mod in %s or above", wd)
		}
	}
}

// SuiteOf returns the reports of the suite in a package. pkg is the folder of the package in the
// module.
func SuiteOf(reports, pkg string) Suite {
	base := filepath.Join(reports, strings.ReplaceAll(pkg, "/", "."))
	return Suite{JSON: base + ".json", JUnit: base + ".xml", Logs: base + ".logs", Started: base + ".started"}
}

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// FileName returns a short file name for text, such as the name of a test.
func FileName(text string) string {
	const longest = 80
	name := strings.Trim(notInFileNames.ReplaceAllString(text, "-"), "-")
	return name[:min(len(name), longest)]
}
