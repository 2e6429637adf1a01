// Package layout has the environment variables and file names that testrun and the suites
// below it share.
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
	// suites; see [Suite]. Nothing is written if it is unset.
	ReportsVariable = "KSCTL_TEST_REPORTS"
	// LongVariable is the environment variable that is 1 in make test-long.
	LongVariable = "KSCTL_TEST_LONG"
	// ProgramsVariable is the environment variable with the folder of the programs of cmd/,
	// built. Suites build what they need themselves if it is unset.
	ProgramsVariable = "KSCTL_TEST_PROGRAMS"
)

// Attempts is the value of [AttemptsVariable].
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

// Suite are the reports of one Ginkgo suite: a JSON file, a JUnit file and, after a failure
// or a flake, a folder with the logs of the programs and of the failed specs.
type Suite struct{ base string }

// WorkingSuite returns the reports of the suite in the working directory, below the folder
// of all reports.
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

// SuiteOf returns the reports of the suite in a package, which is named by its folder in the
// module.
func SuiteOf(reports, pkg string) Suite {
	return Suite{filepath.Join(reports, strings.ReplaceAll(pkg, "/", "."))}
}

// JSON is Ginkgo's own report.
func (s Suite) JSON() string { return s.base + ".json" }

// JUnit is the report for CI servers.
func (s Suite) JUnit() string { return s.base + ".xml" }

// Logs is a folder.
func (s Suite) Logs() string { return s.base + ".logs" }

// Started is a file with the name of the test that runs the suite. It exists once the suite
// has begun, also if it crashed.
func (s Suite) Started() string { return s.base + ".started" }

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// FileName is a short name for a file about a test.
func FileName(text string) string {
	const longest = 80
	name := strings.Trim(notInFileNames.ReplaceAllString(text, "-"), "-")
	return name[:min(len(name), longest)]
}
