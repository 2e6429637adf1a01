package chart

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestFetchFromIndex(t *testing.T) {
	repo, dir := newRepository(t), t.TempDir()
	data := archive(t, "web", "1.2.3")
	repo.add("web", "1.2.3", data)
	f := newFetcher(t, Options{Dir: dir})
	access := newAccessBuilder(repo.URL, repo.ca()).build(t)
	chart, release, err := f.Fetch(t.Context(), ref(repo.URL, "web", "1.2.3"), access)
	if err != nil {
		t.Fatal(err)
	}
	if chart.Digest != digestOf(data) || chart.Component != "main" || chart.Version != "1.2.3" {
		t.Errorf("%+v", chart)
	}
	if _, err := os.Stat(filepath.Join(chart.Root, "web", "Chart.yaml")); err != nil {
		t.Error(err)
	}
	release()
	if got := repo.requestCount(); got != 2 {
		t.Errorf("got %d requests, want one for the index and one for the archive", got)
	}
	// A resolved chart needs no request, also after a restart: the repository is closed.
	repo.Close()
	if _, err := get(t, f, ref(repo.URL, "web", "1.2.3"), access); err != nil {
		t.Error(err)
	}
	if _, err := get(t, newFetcher(t, Options{Dir: dir}), ref(repo.URL, "web", "1.2.3"), access); err != nil {
		t.Error(err)
	}
	// A pinned digest is part of the cache key, so the chart is resolved again.
	pinned := ref(repo.URL, "web", "1.2.3")
	pinned.Digest = digestOf(nil)
	_, err = get(t, f, pinned, access)
	assertError(t, err, Unreachable, false)
}

func TestFetchFromIndexRefuses(t *testing.T) {
	good := archive(t, "web", "1.0.0")
	big := strings.Repeat("0123456789abcdef", 1<<10)
	serves := func(data []byte) func(*repository) {
		return func(r *repository) { r.add("web", "1.0.0", data) }
	}
	listed := func(digest, url string) func(*repository) {
		return func(r *repository) { r.files["/web-1.0.0.tgz"] = good; r.list("web", "1.0.0", digest, url) }
	}
	index := func(raw string) func(*repository) { return func(r *repository) { r.raw = []byte(raw) } }
	answers := func(path string, code int) func(*repository) {
		return func(r *repository) {
			r.add("web", "1.0.0", good)
			r.intercept = func(w http.ResponseWriter, req *http.Request) bool {
				if req.URL.Path == path {
					w.WriteHeader(code)
				}
				return req.URL.Path == path
			}
		}
	}
	leads := func(path, to string) func(*repository) {
		return func(r *repository) {
			r.add("web", "1.0.0", good)
			r.intercept = func(w http.ResponseWriter, req *http.Request) bool {
				if req.URL.Path == path {
					http.Redirect(w, req, to, http.StatusFound)
				}
				return req.URL.Path == path
			}
		}
	}
	var many []tarEntry
	for _, c := range strings.Split(strings.Repeat("x", 25), "") {
		many = append(many, tarEntry{name: "web/" + c + strings.Repeat("y", len(many)), content: "z"})
	}
	for name, c := range map[string]struct {
		set      func(*repository)
		reason   Reason
		terminal bool
		text     string
	}{
		"no such version": {func(r *repository) {
			for _, v := range []string{"0.9.0", "0.9.9", "v1.1.0", "0.8.0", "2.0.0", "3.0.0"} {
				r.list("web", v, "", "x")
			}
		}, NotFound, true, "nearest versions: 0.9.0, 0.9.9, v1.1.0, 2.0.0"},
		"version with a v in the index": {func(r *repository) {
			r.list("web", "v1.0.0", "", "x")
		}, NotFound, true, "v1.0.0"},
		"removed": {index("entries: {web: [{version: 1.0.0, removed: true}]}"), NotFound, true,
			"does not have this version"},
		"no such chart": {func(r *repository) {
			r.list("webb", "1.0.0", "", "x")
		}, NotFound, true, "did you mean webb?"},
		"no entries": {index("apiVersion: v1\n"), RepositoryInvalid, true, "no entries"},
		"HTML page": {index("<html><body>: login</body>\n\t</html>"), RepositoryInvalid, true,
			"can't be read"},
		"a list": {index("[1, 2]"), RepositoryInvalid, true, "can't be read"},
		"JSON of the wrong type": {index(`{"entries": {"web": "x"}}`), RepositoryInvalid, true,
			"can't be read"},
		"index too large": {index("entries: {}\n#" + big + big + big + big + big), RepositoryInvalid,
			true, "65536 bytes allowed"},
		"no digest": {listed("", "web-1.0.0.tgz"), RepositoryInvalid, true,
			"pin a digest with helm.digest"},
		"MD5 digest": {listed("d41d8cd98f00b204e9800998ecf8427e", "web-1.0.0.tgz"),
			RepositoryInvalid, true, "not a SHA-256 digest"},
		"another archive": {listed(digestOf([]byte("x")), "web-1.0.0.tgz"), DigestMismatch, false,
			"does not have the digest"},
		"no URL": {index("entries: {web: [{version: 1.0.0, digest: " + digestOf(good) +
			"}]}"), RepositoryInvalid, true, "no https URL"},
		"archive over plain HTTP": {listed(digestOf(good), "http://charts.example.com/web.tgz"),
			RepositoryInvalid, true, "no https URL"},
		"archive in a registry": {listed(digestOf(good), "oci://r.example.com/charts/web:1.0.0"),
			RepositoryInvalid, true, "oci://r.example.com/charts; set that"},
		"archive at a link-local address": {listed(digestOf(good), "https://169.254.169.254/web.tgz"),
			"RefusedAddress", true, "link-local"},
		"no index":     {answers("/index.yaml", 404), Unreachable, false, "no index.yaml"},
		"index: 500":   {answers("/index.yaml", 500), Unreachable, false, "500 Internal"},
		"index: 403":   {answers("/index.yaml", 403), AccessDenied, false, "spec.charts"},
		"archive: 404": {answers("/web-1.0.0.tgz", 404), Unreachable, false, "does not have it"},
		"archive: 401": {answers("/web-1.0.0.tgz", 401), AccessDenied, false, "401"},
		"archive: 503": {answers("/web-1.0.0.tgz", 503), Unreachable, false, "503"},
		"redirect to plain HTTP": {leads("/index.yaml", "http://charts.example.com/"), "RefusedAddress", true,
			"https to http"},
		"redirect to a link-local address": {leads("/index.yaml", "https://169.254.169.254/"), "RefusedAddress", true,
			"link-local"},
		"not an archive": {serves([]byte("hello")), "Malformed", true, "gzip"},
		"symbolic link": {
			serves(archive(t, "web", "1.0.0", tarEntry{name: "web/x", to: "/etc/passwd"})), "UnsafePath", true,
			"symbolic link"},
		"path outside of the chart": {serves(archive(t, "web", "1.0.0", tarEntry{name: "web/../../x"})),
			"UnsafePath", true, ".."},
		"a large file": {serves(archive(t, "web", "1.0.0",
			tarEntry{name: "web/x", content: strings.Repeat("x", 1<<15+1)})), "TooLarge", true, "at most 32768"},
		"decompression bomb": {serves(archive(t, "web", "1.0.0", tarEntry{"web/a", big + big, ""},
			tarEntry{"web/b", big + big, ""}, tarEntry{"web/c", big, ""})), "TooLarge", true, "65536"},
		"too many files": {serves(archive(t, "web", "1.0.0", many...)), "TooManyFiles", true, "20"},
		"too deep": {serves(archive(t, "web", "1.0.0", tarEntry{name: "web/a/b/c/d/e/f"})),
			"TooDeep", true, "5"},
	} {
		t.Run(name, func(t *testing.T) {
			repo := newRepository(t)
			c.set(repo)
			f := newFetcher(t, Options{Limits: smallLimits, IndexBytes: 1 << 16})
			access := newAccessBuilder(repo.URL, repo.ca()).withLogin("me", password).build(t)
			_, err := get(t, f, ref(repo.URL, "web", "1.0.0"), access)
			assertError(t, err, c.reason, c.terminal, c.text, `component "main": chart web 1.0.0 of https://`)
		})
	}
}

func TestFetchChecksPinnedDigest(t *testing.T) {
	repo := newRepository(t)
	data := archive(t, "web", "1.0.0")
	repo.add("web", "1.0.0", data)
	repo.list("bare", "1.0.0", "", "web-1.0.0.tgz")
	f := newFetcher(t, Options{})
	access := newAccessBuilder(repo.URL, repo.ca()).build(t)
	wanted := ref(repo.URL, "web", "1.0.0")
	wanted.Digest = digestOf([]byte("another"))
	_, err := get(t, f, wanted, access)
	assertError(t, err, DigestMismatch, true, digestOf(data), wanted.Digest, "is pinned")
	wanted.Digest = digestOf(data)
	if _, err := get(t, f, wanted, access); err != nil {
		t.Error(err)
	}
	wanted.Name = "bare" // the index has no digest for it
	if _, err := get(t, f, wanted, access); err != nil {
		t.Error(err)
	}
	wanted.Digest = digestOf([]byte("another"))
	_, err = get(t, f, wanted, access)
	assertError(t, err, DigestMismatch, false)
}

func TestFetchRefusesUnknownCA(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	f := newFetcher(t, Options{})
	_, err := get(t, f, ref(repo.URL, "web", "1.0.0"), nil)
	assertError(t, err, Unreachable, false, "certificate")
	bad := newAccessBuilder(repo.URL, nil)
	bad.secrets.Certificates = map[string][]byte{"ca.crt": []byte("x")}
	_, err = NewAccess(&bad.repo, bad.secrets)
	assertError(t, err, SecretInvalid, true, "ca.crt")
}

func TestCredentialsAreNotSentToOtherHosts(t *testing.T) {
	for name, c := range map[string]struct {
		pass bool
		// redirected is true if a redirect, not the index, leads to the other host.
		redirected bool
		// sent is true if the other host must receive the credentials.
		sent bool
	}{
		"index lists another host":                  {},
		"index lists another host, passCredentials": {pass: true, sent: true},
		"redirect to another host":                  {redirected: true},
		"redirect to another host, passCredentials": {redirected: true, pass: true},
	} {
		t.Run(name, func(t *testing.T) {
			repo, data := newRepository(t), archive(t, "web", "1.0.0")
			var mu sync.Mutex
			var saw []string
			elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				saw = append(saw, r.Header.Get("Authorization"))
				_, _ = w.Write(data)
			}))
			t.Cleanup(elsewhere.Close)
			repo.requireLogin()
			if c.redirected {
				repo.add("web", "1.0.0", data)
				inner := repo.intercept
				repo.intercept = func(w http.ResponseWriter, r *http.Request) bool {
					if inner(w, r) {
						return true
					}
					if r.URL.Path != "/index.yaml" {
						http.Redirect(w, r, elsewhere.URL+"/x", http.StatusFound)
					}
					return r.URL.Path != "/index.yaml"
				}
			} else {
				repo.list("web", "1.0.0", digestOf(data), elsewhere.URL+"/web.tgz")
			}
			how := newAccessBuilder(repo.URL, repo.ca()).withLogin("me", password)
			how.repo.PassCredentials = c.pass
			if _, err := get(t, newFetcher(t, Options{}), ref(repo.URL, "web", "1.0.0"), how.build(t)); err != nil {
				t.Fatal(err)
			}
			if len(saw) != 1 || saw[0] != "" != c.sent {
				t.Errorf("the other host received the credentials %q", saw)
			}
		})
	}
}

func TestFetchWithBearerToken(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	repo.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer "+password {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	how := newAccessBuilder(repo.URL, repo.ca()).withLogin("", "")
	how.secrets.Credentials = map[string][]byte{"bearerToken": []byte(password + "\n")}
	if _, err := get(t, newFetcher(t, Options{}), ref(repo.URL, "web", "1.0.0"), how.build(t)); err != nil {
		t.Error(err)
	}
}

// A caller without access to the repository gets no chart from the cache.
func TestCacheRequiresTheSameAccess(t *testing.T) {
	repo := newRepository(t)
	repo.requireLogin()
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	f := newFetcher(t, Options{})
	wanted := ref(repo.URL, "web", "1.0.0")
	if _, err := get(t, f, wanted, newAccessBuilder(repo.URL, repo.ca()).withLogin("me", password).
		build(t)); err != nil {
		t.Fatal(err)
	}
	_, err := get(t, f, wanted, newAccessBuilder(repo.URL, repo.ca()).build(t))
	assertError(t, err, AccessDenied, false, "401")
	_, err = get(t, f, wanted, newAccessBuilder(repo.URL, repo.ca()).withLogin("me", "guessed").build(t))
	assertError(t, err, AccessDenied, false)
	// The name of the Secret does not count: equal credentials share the cache.
	before := repo.requestCount()
	how := newAccessBuilder(repo.URL, repo.ca()).withLogin("me", password)
	how.repo.SecretRef.Name = "another"
	if _, err := get(t, f, wanted, how.build(t)); err != nil || repo.requestCount() != before {
		t.Errorf("got error %v and %d requests", err, repo.requestCount()-before)
	}
}

func TestConcurrentFetchesShareOneDownload(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	f := newFetcher(t, Options{})
	access := newAccessBuilder(repo.URL, repo.ca()).build(t)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := get(t, f, ref(repo.URL, "web", "1.0.0"), access); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if want := []string{"GET /index.yaml", "GET /web-1.0.0.tgz"}; !slices.Equal(repo.requests, want) {
		t.Errorf("%v, want %v", repo.requests, want)
	}
}

func TestFetchSucceedsAfterOutage(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	repo.intercept = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
	f := newFetcher(t, Options{})
	access := newAccessBuilder(repo.URL, repo.ca()).build(t)
	_, err := get(t, f, ref(repo.URL, "web", "1.0.0"), access)
	assertError(t, err, Unreachable, false)
	repo.mu.Lock()
	repo.intercept = nil
	repo.mu.Unlock()
	if _, err := get(t, f, ref(repo.URL, "web", "1.0.0"), access); err != nil {
		t.Error(err)
	}
}

func TestCacheEvictsUnusedCharts(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	repo.add("web", "2.0.0", archive(t, "web", "2.0.0"))
	f := newFetcher(t, Options{CacheBytes: 1})
	access := newAccessBuilder(repo.URL, repo.ca()).build(t)
	first, release, err := f.Fetch(t.Context(), ref(repo.URL, "web", "1.0.0"), access)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, f, ref(repo.URL, "web", "2.0.0"), access); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Root); err != nil {
		t.Errorf("a chart in use was evicted: %v", err)
	}
	release()
	if _, err := os.Stat(first.Root); err == nil {
		t.Error("an unused chart above the limit was not evicted")
	}
	before := repo.requestCount()
	if _, err := get(t, f, ref(repo.URL, "web", "1.0.0"), access); err != nil || repo.requestCount() != before+2 {
		t.Errorf("got error %v and %d requests", err, repo.requestCount()-before)
	}
}

func TestDigestCacheIsPruned(t *testing.T) {
	r, err := openDigestCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		r.put(strings.Repeat("a", i+1), digestOf(nil))
	}
	r.prune(20)
	all, err := os.ReadDir(r.dir)
	if err != nil || len(all) != 18 {
		t.Errorf("got %d entries and error %v", len(all), err)
	}
	if _, ok := r.get("none"); ok {
		t.Error("got a digest for an unknown key")
	}
	if err := os.WriteFile(filepath.Join(r.dir, "broken"), []byte("sha256:12"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.get("broken"); ok {
		t.Error("got a digest from a malformed file")
	}
}
