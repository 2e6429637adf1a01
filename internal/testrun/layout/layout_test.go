package layout

import (
	"path/filepath"
	"testing"
)

func TestAttempts(t *testing.T) {
	for value, want := range map[string]int{"": 1, "1": 1, "2": 2} {
		t.Setenv(AttemptsVariable, value)
		if n, err := Attempts(); n != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", value, n, err, want)
		}
	}
	for _, value := range []string{"0", "-1", "two"} {
		t.Setenv(AttemptsVariable, value)
		if _, err := Attempts(); err == nil {
			t.Errorf("%q is accepted", value)
		}
	}
}

func TestWorkingSuiteMatchesPackage(t *testing.T) {
	got, err := WorkingSuite("reports")
	if err != nil {
		t.Fatal(err)
	}
	if want := SuiteOf("reports", "internal/testrun/layout"); got != want ||
		got.JSON != filepath.Join("reports", "internal.testrun.layout.json") {
		t.Errorf("%+v, want %+v", got, want)
	}
}
