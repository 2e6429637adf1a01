package suite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

// writeLogs writes the output of failed and flaked specs, which has the logs of controllers
// in this process, into a folder. Without such specs it removes the folder and the logs that
// programs left there.
func writeLogs(folder string, report Report) error {
	errs := []error{os.MkdirAll(folder, 0o750)}
	keep := !report.SuiteSucceeded
	for i, s := range report.SpecReports {
		if !s.Failed() && len(s.AdditionalFailures) == 0 {
			continue
		}
		keep = true
		file := filepath.Join(folder, fmt.Sprintf("spec-%03d-%s.log", i, fileName(s.LeafNodeText)))
		errs = append(errs, os.WriteFile(file, []byte(s.FullText()+"\n\n"+s.CapturedGinkgoWriterOutput+s.CapturedStdOutErr), 0o600))
	}
	if !keep {
		errs = append(errs, os.RemoveAll(folder))
	}
	return errors.Join(errs...)
}

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// fileName is a short name for a file about a spec.
func fileName(text string) string {
	const longest = 60
	name := strings.Trim(notInFileNames.ReplaceAllString(text, "-"), "-")
	return name[:min(len(name), longest)]
}
