package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const token = "acme-token-0123456789"

// newOptions returns the options of flags.
func newOptions(t *testing.T, flags ...string) *options {
	t.Helper()
	tokens := t.TempDir()
	if err := os.WriteFile(filepath.Join(tokens, "acme"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &options{}
	cmd := o.command()
	if err := cmd.ParseFlags(append([]string{"--namespace=team", "--tokens=" + tokens, "--data=" + t.TempDir(),
		"--addr=127.0.0.1:0", "--files-addr=127.0.0.1:0", "--files-url=http://files"}, flags...)); err != nil {
		t.Fatal(err)
	}
	o.api.Client = fake.NewClientBuilder().Build()
	return o
}

// writeCertificate writes a certificate and its key.
func writeCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestServeUntilCanceled(t *testing.T) {
	cert, key := writeCertificate(t)
	for name, flags := range map[string][]string{"http": nil, "https": {"--cert-file=" + cert, "--key-file=" + key}} {
		t.Run(name, func(t *testing.T) {
			started := make(chan string, 1)
			log := funcr.New(func(_, args string) {
				if strings.Contains(args, `"serving"`) {
					started <- args
				}
			}, funcr.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- newOptions(t, flags...).serve(ctx, log) }()
			var line string
			select {
			case line = <-started:
			case err := <-done:
				t.Fatal(err)
			}
			addresses := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(line, -1)
			for url, want := range map[string]int{name + "://" + addresses[0] + "/readyz": 200,
				"http://" + addresses[1] + "/readyz": 200, "http://" + addresses[1] + "/files/x/y": 404,
				"http://" + addresses[1] + "/client/v4/user/tokens/verify":        404,
				name + "://" + addresses[0] + "/client/v4/user/tokens/verify":     200,
				name + "://" + addresses[0] + "/files/" + strings.Repeat("0", 64): 404} {
				if got := status(t, url); got != want {
					t.Errorf("%s: got %d, want %d", url, got, want)
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// status returns the status of a request with a token.
func status(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a test
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

func TestRefusedFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--files-url=":         "--files-url is required without --s3",
		"--data-limit=much":    `--data-limit "much": use a size such as 10Mi`,
		"--max-file-size=-1":   `--max-file-size "-1"`,
		"--addr=nowhere":       "--addr:",
		"--files-addr=nowhere": "--files-addr:",
		"--s3=/prefix":         "has no bucket: use bucket or bucket/prefix",
		"--tokens=/missing":    "reading the folder of the tokens",
		"--data=/proc/missing": "creating the folder of the files",
		"--cert-file=/missing": "--cert-file and --key-file: set both or none",
		"--keep=0s":            "--keep 0s: use a positive duration",
	} {
		err := newOptions(t, flag).serve(t.Context(), logr.Discard())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", flag, err, want)
		}
	}
}
