package git

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ksctl/gitops/stacks/artifact"
)

// server answers like a Git server, with bytes of the test's choice.
func server(t *testing.T, refs string, answer func(http.ResponseWriter)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = w.Write([]byte(refs))
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		answer(w)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

func refsOf(id plumbing.Hash, caps string) string {
	return pkt("# service=git-upload-pack\n") + "0000" + pkt(id.String()+" refs/heads/main\x00"+caps+"\n") + "0000"
}

func TestHostileServers(t *testing.T) {
	file := blob("content\n")
	tr := folderOf("100644 file", file.id())
	head := commitOf(tr)
	pack := string(packOf(0, head, tr, file))
	text := func(s string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = w.Write([]byte(s)) }
	}
	endless := func(w http.ResponseWriter) {
		_, _ = w.Write([]byte(pkt("NAK\n") + "PACK"))
		for chunk := make([]byte, 32<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	shallows := func(w http.ResponseWriter) {
		for line := pkt("shallow " + head.id().String()); ; {
			if _, err := w.Write([]byte(line)); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		caps   string
		answer func(http.ResponseWriter)
		is     Reason
	}{
		"plain":              {"", text(pkt("NAK\n") + pack), ""},
		"in frames":          {"side-band-64k", text(pkt("NAK\n") + pkt("\x02progress") + pkt("\x01"+pack) + "0000"), ""},
		"shallow":            {"shallow", text(pkt("shallow "+head.id().String()) + "0000" + pkt("NAK\n") + pack), ""},
		"endless":            {"", endless, Reason(artifact.TooLarge)},
		"endlessly shallow":  {"shallow", shallows, Reason(artifact.TooLarge)},
		"nothing":            {"", text(""), OperationFailed},
		"error in a frame":   {"side-band-64k", text(pkt("NAK\n") + pkt("\x03out of memory")), OperationFailed},
		"unknown frame":      {"side-band-64k", text(pkt("NAK\n") + pkt("\x09x")), OperationFailed},
		"frame of no length": {"side-band-64k", text(pkt("NAK\n") + "0004"), OperationFailed},
		"broken frame":       {"side-band-64k", text(pkt("NAK\n") + "zzzz"), OperationFailed},
		"refused":            {"", text(pkt("ERR upload-pack: not our ref")), OperationFailed},
		"web page":           {"", text("<html>"), OperationFailed},
		"redirected": {"", func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://169.254.169.254/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, OperationFailed},
		"error": {"", func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, OperationFailed},
	} {
		t.Run(name, func(t *testing.T) {
			r, id := headOf(t, newClient(t, Options{Limits: tight}), server(t, refsOf(head.id(), c.caps), c.answer))
			got, err := r.Fetch(t.Context(), id)
			if reason := reasonOf(t, err); reason != c.is {
				t.Fatalf("reason %q, want %q: %v", reason, c.is, err)
			}
			if err != nil {
				return
			}
			if f := files(t, got.FS()); f["file"] != "content\n" {
				t.Errorf("got %v", f)
			}
			if err := got.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func headOf(t *testing.T, c *Client, url string) (*Remote, string) {
	t.Helper()
	return head(t, c, url, "main")
}

func TestHostileLists(t *testing.T) {
	id := strings.Repeat("1", 40)
	begin := pkt("# service=git-upload-pack\n") + "0000"
	for name, c := range map[string]struct {
		list string
		is   Reason
	}{
		"nothing":        {"", OperationFailed},
		"web page":       {"<html>", OperationFailed},
		"flush":          {begin + "0000", RepositoryEmpty},
		"no refs":        {begin + pkt(strings.Repeat("0", 40)+" capabilities^{}\x00agent=x\n") + "0000", RepositoryEmpty},
		"refused":        {begin + pkt("ERR no entry for you"), OperationFailed},
		"cut off":        {begin + pkt(id+" refs/heads/main\x00\n"), OperationFailed},
		"short":          {begin + pkt("1"), OperationFailed},
		"no hash":        {begin + pkt(strings.Repeat("x", 40)+" refs/heads/main\x00\n") + "0000", OperationFailed},
		"bad shallow":    {begin + pkt(id+" refs/heads/main\x00\n") + pkt("shallow 1") + "0000", OperationFailed},
		"SHA-256, named": {begin + pkt(id+" refs/heads/main\x00object-format=sha256\n") + "0000", Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newClient(t, Options{}).List(t.Context(), Repository{URL: server(t, c.list, nil)})
			if got := reasonOf(t, err); got != c.is {
				t.Errorf("reason %q, want %q: %v", got, c.is, err)
			}
			if errors.As(err, new(*PanicError)) {
				t.Errorf("panicked: %v", err)
			}
		})
	}
}

func TestPanicIsAnError(t *testing.T) {
	err := guard(func() error { panic("index out of range") })
	if reasonOf(t, err) != OperationFailed || !errors.As(err, new(*PanicError)) || strings.Contains(err.Error(), "goroutine") {
		t.Errorf("got %v", err)
	}
}
