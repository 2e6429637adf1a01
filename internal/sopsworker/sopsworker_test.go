package sopsworker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/stacks/sops"
)

var fakes = map[string]sops.Decrypter{
	"works": func(_ context.Context, r sops.Request) ([]byte, error) {
		return append([]byte(r.Name+" "), append(r.Data, r.Secret["a.agekey"]...)...), nil
	},
	"refuses": func(context.Context, sops.Request) ([]byte, error) {
		return nil, &sops.Error{Reason: sops.KeyMissing, Message: "no key"}
	},
	"fails": func(context.Context, sops.Request) ([]byte, error) { return nil, errors.New("hunter2") },
	"hangs": func(context.Context, sops.Request) ([]byte, error) {
		time.Sleep(time.Hour)
		return nil, nil
	},
	"panics": func(context.Context, sops.Request) ([]byte, error) { panic("hunter2") },
	"eats": func(context.Context, sops.Request) ([]byte, error) {
		var all [][]byte
		for {
			all = append(all, bytes.Repeat([]byte{1}, 64<<20))
			runtime.KeepAlive(all)
		}
	},
}

// encrypt is a fake that returns the fields of the request.
func encrypt(_ context.Context, r sops.EncryptRequest) ([]byte, error) {
	if len(r.Recipients) == 0 {
		return nil, &sops.Error{Reason: sops.RecipientInvalid, Message: "no recipient"}
	}
	return fmt.Appendf(nil, "%s %s %s %q %s%s", r.Name, r.Data, r.Format, r.Recipients, r.EncryptedRegex,
		r.UnencryptedRegex), nil
}

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if fake, ok := fakes[name]; ok {
		if err := Serve(context.Background(), os.Stdin, os.Stdout,
			Handlers{Decrypt: fake, Encrypt: encrypt}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fakeProgram returns a link to this test binary with the name of a fake. The file name selects the
// fake, because the process has no environment.
func fakeProgram(t *testing.T, fake string) string {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), fake)
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// newClient returns a client of a fake. Its memory limit is large enough for the race detector.
func newClient(t *testing.T, fake string) *Client {
	t.Helper()
	c := New(fakeProgram(t, fake))
	c.memoryBytes = 64 << 30
	return c
}

var sealed = sops.Request{Name: "a.json", Data: []byte("data "), Format: sops.JSON,
	Secret: map[string][]byte{"a.agekey": []byte("key")}}

func TestDecrypt(t *testing.T) {
	t.Setenv("NOBODY", "hunter2")
	got, err := newClient(t, "works").Decrypt(t.Context(), sealed)
	if err != nil || string(got) != "a.json data key" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestDecryptReturnsReason(t *testing.T) {
	for fake, c := range map[string]struct {
		reason sops.Reason
		says   string
		wait   time.Duration
		memory int64
	}{
		"refuses": {reason: sops.KeyMissing, says: "no key"},
		"fails":   {reason: sops.InternalFailure, says: "its error is withheld"},
		"panics": {reason: sops.Unavailable,
			says: "the decryption worker exited without a valid response: exit status 2"},
		"hangs": {reason: sops.Interrupted,
			says: "decryption was interrupted: it took longer than the timeout of 500ms", wait: 500 * time.Millisecond},
		"eats": {reason: sops.Unavailable, says: "exited without a valid response", memory: 1 << 30},
	} {
		if raceEnabled && c.memory != 0 {
			continue // the race detector maps more memory than any limit
		}
		client := newClient(t, fake)
		client.minTimeout = cmp.Or(c.wait, client.minTimeout)
		client.memoryBytes = cmp.Or(c.memory, client.memoryBytes)
		_, err := client.Decrypt(t.Context(), sealed)
		e, ok := errors.AsType[*sops.Error](err)
		if !ok || e.Reason != c.reason || !strings.Contains(e.Message, c.says) ||
			strings.Contains(e.Message, "hunter2") {
			t.Errorf("%s: got %v", fake, err)
		}
	}
}

func TestDecryptWithoutTheProgram(t *testing.T) {
	_, err := New("/nowhere/sops-worker").Decrypt(t.Context(), sealed)
	e, ok := errors.AsType[*sops.Error](err)
	if !ok || e.Reason != sops.Unavailable || e.Terminal() || !strings.Contains(e.Message, "--sops-worker") {
		t.Errorf("got %v", err)
	}
	if c := New(""); filepath.Base(c.path) != ProgramName {
		t.Errorf("default path: %s", c.path)
	}
}

func TestDecryptReturnsOnCancel(t *testing.T) {
	c := newClient(t, "hangs")
	c.slots = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 { // one runs, and one waits for its slot
		go func() { _, err := c.Decrypt(ctx, sealed); ended <- err }()
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}

func TestTimeoutGrowsWithTheFile(t *testing.T) {
	c := New("")
	for size, want := range map[int]time.Duration{0: time.Minute, 1 << 19: 75 * time.Second, 5 << 20: 210 * time.Second,
		1 << 40: 210 * time.Second} {
		if got := c.timeout(size); got != want {
			t.Errorf("%d bytes: got %s, want %s", size, got, want)
		}
	}
}

// A request that timed out is not executed at each retry; a changed request is.
func TestDecryptBacksOffAfterTimeout(t *testing.T) {
	c := newClient(t, "hangs")
	c.minTimeout = 50 * time.Millisecond
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.backoff.now = func() time.Time { return now }
	try := func(r sops.Request, says string) {
		t.Helper()
		_, err := c.Decrypt(t.Context(), r)
		e, ok := errors.AsType[*sops.Error](err)
		if !ok || e.Reason != sops.Interrupted || e.Terminal() || !strings.Contains(e.Message, says) {
			t.Fatalf("got %v, want %s", err, says)
		}
	}
	for wait := time.Minute; wait < 3*time.Hour; wait *= 2 {
		try(sealed, "took longer than the timeout of 50ms")
		until := now.Add(min(wait, time.Hour))
		now = until.Add(-time.Second)
		try(sealed, "the next attempt is at "+until.Format(time.RFC3339))
		now = until
	}
	changed := sealed
	changed.Data = []byte("other ")
	try(sealed, "took longer")
	try(changed, "took longer")
	now, c.path, c.minTimeout = now.Add(time.Hour), fakeProgram(t, "works"), time.Minute
	if _, err := c.Decrypt(t.Context(), sealed); err != nil {
		t.Error(err)
	}
	if c.backoff.record(requestHash{}); len(c.backoff.entries) != 2 {
		t.Errorf("%d requests are tracked", len(c.backoff.entries))
	}
	now = now.Add(3 * time.Hour)
	for i := range 2 * maxTracked {
		c.backoff.record(requestHash{byte(i), byte(i >> 8)})
	}
	if len(c.backoff.entries) != maxTracked {
		t.Errorf("%d requests are tracked", len(c.backoff.entries))
	}
}

// A canceled request starts no backoff: the file is not at fault.
func TestCanceledDecryptStartsNoBackoff(t *testing.T) {
	c := newClient(t, "hangs")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Decrypt(ctx, sealed); !errors.Is(err, context.DeadlineExceeded) || len(c.backoff.entries) != 0 {
		t.Errorf("got %v, and %d requests are tracked", err, len(c.backoff.entries))
	}
}

func TestEncrypt(t *testing.T) {
	c := newClient(t, "works")
	r := sops.EncryptRequest{Name: "a.json", Data: []byte("data"), Format: sops.JSON, Recipients: []string{"age1x"},
		EncryptedRegex: "^a$"}
	got, err := c.Encrypt(t.Context(), r)
	if err != nil || string(got) != `a.json data json ["age1x"] ^a$` {
		t.Errorf("got %q, %v", got, err)
	}
	r.EncryptedRegex, r.UnencryptedRegex = "", "^b$"
	if got, err = c.Encrypt(t.Context(), r); err != nil || string(got) != `a.json data json ["age1x"] ^b$` {
		t.Errorf("got %q, %v", got, err)
	}
	r.Recipients = nil
	_, err = c.Encrypt(t.Context(), r)
	if e, ok := errors.AsType[*sops.Error](err); !ok || e.Reason != sops.RecipientInvalid {
		t.Errorf("got %v", err)
	}
}

func TestServeRejectsInvalidRequest(t *testing.T) {
	for _, in := range []string{`{"data": hunter2`, `{"data": "hunter2"}`} {
		var out bytes.Buffer
		err := Serve(t.Context(), strings.NewReader(in), &out, Handlers{Decrypt: fakes["works"], Encrypt: encrypt})
		if err == nil || strings.Contains(err.Error(), "hunter2") || out.Len() != 0 {
			t.Errorf("got %v, %s", err, out.String())
		}
	}
}
