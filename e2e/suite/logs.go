package suite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

// writeLogs writes the output of failed and flaked specs to a folder. The output contains the logs
// of controllers in this process. If the suite succeeded without such specs, writeLogs removes the
// folder, including the logs that child processes wrote to it.
func writeLogs(folder string, report Report) error {
	errs := []error{os.MkdirAll(folder, 0o750)}
	keep := !report.SuiteSucceeded
	for i, s := range report.SpecReports {
		if !s.Failed() && len(s.AdditionalFailures) == 0 {
			continue
		}
		keep = true
		file := filepath.Join(folder, fmt.Sprintf("spec-%03d-%s.log", i, layout.FileName(s.LeafNodeText)))
		errs = append(errs,
			os.WriteFile(file, []byte(s.FullText()+"\n\n"+s.CapturedGinkgoWriterOutput+s.CapturedStdOutErr), 0o600))
	}
	if !keep {
		errs = append(errs, os.RemoveAll(folder))
	}
	return errors.Join(errs...)
}
