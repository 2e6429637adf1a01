package gitserver

import "testing"

// ForTest serves one repository until the end of a test.
func ForTest(t testing.TB, repository string, options ...Option) (*Server, *Repo) {
	t.Helper()
	s, err := New(t.TempDir(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := s.NewRepo(t.Context(), repository)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}
