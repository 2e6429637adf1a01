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

// startServer starts a Git server that responds with the given refs and the given answer.
func startServer(t *testing.T, refs string, answer func(http.ResponseWriter)) string {
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

func pktLine(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

func advertisement(id plumbing.Hash, caps string) string {
	return pktLine("# service=git-upload-pack\n") + "0000" + pktLine(id.String()+" refs/heads/main\x00"+caps+"\n") +
		"0000"
}

func TestFetchFromHostileServer(t *testing.T) {
	file := blobObject("content\n")
	tr := treeObject("100644 file", file.id())
	head := commitObject(tr)
	pack := string(encodePack(0, head, tr, file))
	text := func(s string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = w.Write([]byte(s)) }
	}
	endless := func(w http.ResponseWriter) {
		_, _ = w.Write([]byte(pktLine("NAK\n") + "PACK"))
		for chunk := make([]byte, 32<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	shallows := func(w http.ResponseWriter) {
		for line := pktLine("shallow " + head.id().String()); ; {
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
		"plain": {"", text(pktLine("NAK\n") + pack), ""},
		"in frames": {"side-band-64k",
			text(pktLine("NAK\n") + pktLine("\x02progress") + pktLine("\x01"+pack) + "0000"), ""},
		"shallow": {"shallow",
			text(pktLine("shallow "+head.id().String()) + "0000" + pktLine("NAK\n") + pack), ""},
		"endless":           {"", endless, artifact.TooLarge},
		"endlessly shallow": {"shallow", shallows, artifact.TooLarge},
		"empty":             {"", text(""), OperationFailed},
		"error in a frame": {"side-band-64k", text(pktLine("NAK\n") + pktLine("\x03out of memory")),
			OperationFailed},
		"unknown frame":         {"side-band-64k", text(pktLine("NAK\n") + pktLine("\x09x")), OperationFailed},
		"frame without content": {"side-band-64k", text(pktLine("NAK\n") + "0004"), OperationFailed},
		"broken frame":          {"side-band-64k", text(pktLine("NAK\n") + "zzzz"), OperationFailed},
		"refused":               {"", text(pktLine("ERR upload-pack: not our ref")), OperationFailed},
		"web page":              {"", text("<html>"), OperationFailed},
		"redirected": {"", func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://169.254.169.254/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, OperationFailed},
		"error": {"", func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, OperationFailed},
	} {
		t.Run(name, func(t *testing.T) {
			r, id := listMain(t, newClient(t, Options{Limits: tightLimits}),
				startServer(t, advertisement(head.id(), c.caps), c.answer))
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

func listMain(t *testing.T, c *Client, url string) (*Remote, string) {
	t.Helper()
	return listHead(t, c, url, "main")
}

func TestListFromHostileServer(t *testing.T) {
	id := strings.Repeat("1", 40)
	begin := pktLine("# service=git-upload-pack\n") + "0000"
	for name, c := range map[string]struct {
		list string
		is   Reason
	}{
		"empty":    {"", OperationFailed},
		"web page": {"<html>", OperationFailed},
		"flush":    {begin + "0000", RepositoryEmpty},
		"no refs": {begin + pktLine(strings.Repeat("0", 40)+" capabilities^{}\x00agent=x\n") + "0000",
			RepositoryEmpty},
		"refused":   {begin + pktLine("ERR no entry for you"), OperationFailed},
		"truncated": {begin + pktLine(id+" refs/heads/main\x00\n"), OperationFailed},
		"short":     {begin + pktLine("1"), OperationFailed},
		"no hash": {begin + pktLine(strings.Repeat("x", 40)+" refs/heads/main\x00\n") + "0000",
			OperationFailed},
		"bad shallow": {begin + pktLine(id+" refs/heads/main\x00\n") + pktLine("shallow 1") + "0000",
			OperationFailed},
		"SHA-256 repository": {begin + pktLine(id+" refs/heads/main\x00object-format=sha256\n") + "0000", Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newClient(t, Options{}).List(t.Context(), Repository{URL: startServer(t, c.list, nil)})
			if got := reasonOf(t, err); got != c.is {
				t.Errorf("reason %q, want %q: %v", got, c.is, err)
			}
			if errors.Is(err, errPanic) {
				t.Errorf("panicked: %v", err)
			}
		})
	}
}

func TestRecoverPanicReturnsError(t *testing.T) {
	err := recoverPanic(func() error { panic("index out of range") })
	if reasonOf(t, err) != OperationFailed || !errors.Is(err, errPanic) || strings.Contains(err.Error(), "goroutine") {
		t.Errorf("got %v", err)
	}
}
