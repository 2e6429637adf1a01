package suite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

func TestPanickedReturnsSpecsRepeatedAfterPanic(t *testing.T) {
	spec := func(text string, states ...types.SpecState) types.SpecReport {
		s := types.SpecReport{LeafNodeText: text, State: types.SpecStatePassed}
		for _, state := range states {
			s.AdditionalFailures = append(s.AdditionalFailures, types.AdditionalFailure{State: state})
		}
		return s
	}
	r := types.Report{SpecReports: types.SpecReports{
		spec("passed"), spec("flaked", types.SpecStateFailed), spec("panicked", types.SpecStatePanicked),
	}}
	if got := panicked(r); len(got) != 1 || got[0] != "panicked" {
		t.Errorf("panicked: %q", got)
	}
}

func TestWriteLogsKeepsLogsOfFailedAndFlakedSpecs(t *testing.T) {
	flaked := types.SpecReport{LeafNodeText: "takes / two attempts", State: types.SpecStatePassed,
		CapturedGinkgoWriterOutput: "output",
		AdditionalFailures:         []types.AdditionalFailure{{State: types.SpecStateFailed}}}
	for name, c := range map[string]struct {
		report types.Report
		want   []string
	}{
		"passed": {types.Report{SuiteSucceeded: true,
			SpecReports: types.SpecReports{{State: types.SpecStatePassed}}}, nil},
		"flaked": {types.Report{SuiteSucceeded: true, SpecReports: types.SpecReports{flaked}},
			[]string{"program.log", "spec-000-takes-two-attempts.log"}},
		"setup failed": {types.Report{}, []string{"program.log"}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "logs")
			if err := os.Mkdir(folder, 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, "program.log"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := writeLogs(folder, c.report); err != nil {
				t.Fatal(err)
			}
			files, _ := filepath.Glob(filepath.Join(folder, "*"))
			if len(files) != len(c.want) {
				t.Fatalf("files %q, want %q", files, c.want)
			}
			for i, f := range files {
				if filepath.Base(f) != c.want[i] {
					t.Errorf("file %s, want %s", f, c.want[i])
				}
			}
		})
	}
}
