package runtime_test

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/internal/workers/runtime"
	"github.com/ksctl/gitops/internal/workers/workerd"
)

func TestParseWorkers(t *testing.T) {
	got, err := runtime.ParseWorkers([]byte(`[
		{"name": "a", "port": 8080, "envPrefix": "", "compatibilityDate": "2026-01-01", "secret": true},
		{"name": "b", "port": 8081}]`))
	if err != nil || len(got) != 2 || got[0].EnvPrefix == nil || *got[0].EnvPrefix != "" || !got[0].Secret ||
		got[0].CompatibilityDate != "2026-01-01" || got[1].EnvPrefix != nil || got[1].Port != 8081 {
		t.Errorf("%+v, %v; the default prefix is %s", got, err, workerd.DefaultPrefix)
	}
	for content, want := range map[string]string{
		``:   "reading the list of workers",
		`{}`: "reading the list of workers",
		`[]`: "the list of workers is empty",
		`[{"name": "a", "port": 8080, "image": 1}]`:                     `unknown field "image"`,
		`[{"name": "../a", "port": 8080}]`:                              `script name "../a" is invalid`,
		`[{"name": "a"}]`:                                               "port 0 is not between",
		`[{"name": "a", "port": 65536}]`:                                "port 65536 is not between",
		`[{"name": "a", "port": 1}, {"name": "a", "port": 2}]`:          "worker a occurs twice",
		`[{"name": "a", "port": 1}, {"name": "b", "port": 1}]`:          "workers a and b have the same port 1",
		`[{"name": "a", "port": 1, "compatibilityDate": "1 May 2026"}]`: `compatibility date "1 May 2026"`,
	} {
		if got, err := runtime.ParseWorkers([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", content, got, err)
		}
	}
}
