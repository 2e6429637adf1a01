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
	access := reaching(repo.URL, repo.ca()).access(t)
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
	if got := repo.count(); got != 2 {
		t.Errorf("%d requests, want one for the index and one for the archive", got)
	}
	// What was resolved costs nothing, not after a restart either, and with the repository gone.
	repo.Close()
	if _, err := get(t, f, ref(repo.URL, "web", "1.2.3"), access); err != nil {
		t.Error(err)
	}
	if _, err := get(t, newFetcher(t, Options{Dir: dir}), ref(repo.URL, "web", "1.2.3"), access); err != nil {
		t.Error(err)
	}
	// But a pin is another question.
	pinned := ref(repo.URL, "web", "1.2.3")
	pinned.Digest = digestOf(nil)
	_, err = get(t, f, pinned, access)
	refused(t, err, Unreachable, false)
}

func TestFetchRefuses(t *testing.T) {
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
		}, NotFound, true, "the nearest that it has: 0.9.0, 0.9.9, v1.1.0, 2.0.0"},
		"the same version, otherwise written": {func(r *repository) { r.list("web", "v1.0.0", "", "x") }, NotFound, true, "v1.0.0"},
		"removed":                             {index("entries: {web: [{version: 1.0.0, removed: true}]}"), NotFound, true, "does not have this version"},
		"no such chart":                       {func(r *repository) { r.list("webb", "1.0.0", "", "x") }, NotFound, true, "did you mean webb?"},
		"no entries":                          {index("apiVersion: v1\n"), RepositoryInvalid, true, "no entries"},
		"a page instead":                      {index("<html><body>: login</body>\n\t</html>"), RepositoryInvalid, true, "can't be read"},
		"a list":                              {index("[1, 2]"), RepositoryInvalid, true, "can't be read"},
		"JSON that is wrong":                  {index(`{"entries": {"web": "x"}}`), RepositoryInvalid, true, "can't be read"},
		"an index that is too big":            {index("entries: {}\n#" + big + big + big + big + big), RepositoryInvalid, true, "65536 bytes allowed"},
		"no digest":                           {listed("", "web-1.0.0.tgz"), RepositoryInvalid, true, "pin one with helm.digest"},
		"a digest of MD5":                     {listed("d41d8cd98f00b204e9800998ecf8427e", "web-1.0.0.tgz"), RepositoryInvalid, true, "not one of SHA-256"},
		"another archive":                     {listed(digestOf([]byte("x")), "web-1.0.0.tgz"), DigestMismatch, false, "not what the repository says"},
		"no address":                          {index("entries: {web: [{version: 1.0.0, digest: " + digestOf(good) + "}]}"), RepositoryInvalid, true, "no https address"},
		"plain HTTP":                          {listed(digestOf(good), "http://charts.example.com/web.tgz"), RepositoryInvalid, true, "no https address"},
		"in a registry":                       {listed(digestOf(good), "oci://r.example.com/charts/web:1.0.0"), RepositoryInvalid, true, "oci://r.example.com/charts; name that"},
		"a link-local archive":                {listed(digestOf(good), "https://169.254.169.254/web.tgz"), "RefusedAddress", true, "link-local"},
		"no index":                            {answers("/index.yaml", 404), Unreachable, false, "no index.yaml"},
		"index: 500":                          {answers("/index.yaml", 500), Unreachable, false, "500 Internal"},
		"index: 403":                          {answers("/index.yaml", 403), AccessDenied, false, "spec.charts"},
		"archive: 404":                        {answers("/web-1.0.0.tgz", 404), Unreachable, false, "does not have it"},
		"archive: 401":                        {answers("/web-1.0.0.tgz", 401), AccessDenied, false, "401"},
		"archive: 503":                        {answers("/web-1.0.0.tgz", 503), Unreachable, false, "503"},
		"to plain HTTP":                       {leads("/index.yaml", "http://charts.example.com/"), "RefusedAddress", true, "https to http"},
		"to a link-local address":             {leads("/index.yaml", "https://169.254.169.254/"), "RefusedAddress", true, "link-local"},
		"not an archive":                      {serves([]byte("hello")), "Malformed", true, "gzip"},
		"a link":                              {serves(archive(t, "web", "1.0.0", tarEntry{name: "web/x", to: "/etc/passwd"})), "UnsafePath", true, "symbolic link"},
		"out of the tree":                     {serves(archive(t, "web", "1.0.0", tarEntry{name: "web/../../x"})), "UnsafePath", true, ".."},
		"a large file":                        {serves(archive(t, "web", "1.0.0", tarEntry{name: "web/x", content: strings.Repeat("x", 1<<15+1)})), "TooLarge", true, "at most 32768"},
		"a bomb":                              {serves(archive(t, "web", "1.0.0", tarEntry{"web/a", big + big, ""}, tarEntry{"web/b", big + big, ""}, tarEntry{"web/c", big, ""})), "TooLarge", true, "65536"},
		"too many files":                      {serves(archive(t, "web", "1.0.0", many...)), "TooManyFiles", true, "20"},
		"too deep":                            {serves(archive(t, "web", "1.0.0", tarEntry{name: "web/a/b/c/d/e/f"})), "TooDeep", true, "5"},
	} {
		t.Run(name, func(t *testing.T) {
			repo := newRepository(t)
			c.set(repo)
			f := newFetcher(t, Options{Limits: small, IndexBytes: 1 << 16})
			access := reaching(repo.URL, repo.ca()).login("me", password).access(t)
			_, err := get(t, f, ref(repo.URL, "web", "1.0.0"), access)
			refused(t, err, c.reason, c.terminal, c.text, `component "main": chart web 1.0.0 of https://`)
		})
	}
}

func TestPinnedDigest(t *testing.T) {
	repo := newRepository(t)
	data := archive(t, "web", "1.0.0")
	repo.add("web", "1.0.0", data)
	repo.list("bare", "1.0.0", "", "web-1.0.0.tgz")
	f := newFetcher(t, Options{})
	access := reaching(repo.URL, repo.ca()).access(t)
	wanted := ref(repo.URL, "web", "1.0.0")
	wanted.Digest = digestOf([]byte("another"))
	_, err := get(t, f, wanted, access)
	refused(t, err, DigestMismatch, true, digestOf(data), wanted.Digest, "is pinned")
	wanted.Digest = digestOf(data)
	if _, err := get(t, f, wanted, access); err != nil {
		t.Error(err)
	}
	wanted.Name = "bare" // whose digest the index does not say
	if _, err := get(t, f, wanted, access); err != nil {
		t.Error(err)
	}
	wanted.Digest = digestOf([]byte("another"))
	_, err = get(t, f, wanted, access)
	refused(t, err, DigestMismatch, false)
}

func TestUnknownAuthority(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	f := newFetcher(t, Options{})
	_, err := get(t, f, ref(repo.URL, "web", "1.0.0"), nil)
	refused(t, err, Unreachable, false, "certificate")
	bad := reaching(repo.URL, nil)
	bad.secrets.Certificates = map[string][]byte{"ca.crt": []byte("x")}
	_, err = NewAccess(&bad.repo, bad.secrets)
	refused(t, err, SecretInvalid, true, "ca.crt")
}

func TestCredentialsStayWithTheirHost(t *testing.T) {
	for name, c := range map[string]struct {
		pass bool
		// redirected is where the archive is by a redirect, not by the index.
		redirected bool
		sent       bool
	}{
		"listed elsewhere":                 {},
		"listed elsewhere, and passed":     {pass: true, sent: true},
		"redirected elsewhere":             {redirected: true},
		"redirected elsewhere, and passed": {redirected: true, pass: true},
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
			repo.protect()
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
			how := reaching(repo.URL, repo.ca()).login("me", password)
			how.repo.PassCredentials = c.pass
			if _, err := get(t, newFetcher(t, Options{}), ref(repo.URL, "web", "1.0.0"), how.access(t)); err != nil {
				t.Fatal(err)
			}
			if len(saw) != 1 || saw[0] != "" != c.sent {
				t.Errorf("the other host saw %q", saw)
			}
		})
	}
}

func TestBearerToken(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	repo.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer "+password {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	how := reaching(repo.URL, repo.ca()).login("", "")
	how.secrets.Credentials = map[string][]byte{"bearerToken": []byte(password + "\n")}
	if _, err := get(t, newFetcher(t, Options{}), ref(repo.URL, "web", "1.0.0"), how.access(t)); err != nil {
		t.Error(err)
	}
}

// Who may not ask the repository gets nothing from the cache either.
func TestCacheIsForThoseWithAccess(t *testing.T) {
	repo := newRepository(t)
	repo.protect()
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	f := newFetcher(t, Options{})
	wanted := ref(repo.URL, "web", "1.0.0")
	if _, err := get(t, f, wanted, reaching(repo.URL, repo.ca()).login("me", password).access(t)); err != nil {
		t.Fatal(err)
	}
	_, err := get(t, f, wanted, reaching(repo.URL, repo.ca()).access(t))
	refused(t, err, AccessDenied, false, "401")
	_, err = get(t, f, wanted, reaching(repo.URL, repo.ca()).login("me", "guessed").access(t))
	refused(t, err, AccessDenied, false)
	// Whatever the Secret is called, who has the same is the same.
	before := repo.count()
	how := reaching(repo.URL, repo.ca()).login("me", password)
	how.repo.SecretRef.Name = "another"
	if _, err := get(t, f, wanted, how.access(t)); err != nil || repo.count() != before {
		t.Errorf("%v, %d requests", err, repo.count()-before)
	}
}

func TestOneDownloadForMany(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	f := newFetcher(t, Options{})
	access := reaching(repo.URL, repo.ca()).access(t)
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

func TestDownThenUp(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	repo.intercept = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
	f := newFetcher(t, Options{})
	access := reaching(repo.URL, repo.ca()).access(t)
	_, err := get(t, f, ref(repo.URL, "web", "1.0.0"), access)
	refused(t, err, Unreachable, false)
	repo.mu.Lock()
	repo.intercept = nil
	repo.mu.Unlock()
	if _, err := get(t, f, ref(repo.URL, "web", "1.0.0"), access); err != nil {
		t.Error(err)
	}
}

func TestCacheIsBounded(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	repo.add("web", "2.0.0", archive(t, "web", "2.0.0"))
	f := newFetcher(t, Options{CacheBytes: 1})
	access := reaching(repo.URL, repo.ca()).access(t)
	first, release, err := f.Fetch(t.Context(), ref(repo.URL, "web", "1.0.0"), access)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, f, ref(repo.URL, "web", "2.0.0"), access); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Root); err != nil {
		t.Errorf("a chart in use was thrown away: %v", err)
	}
	release()
	if _, err := os.Stat(first.Root); err == nil {
		t.Error("a chart that nobody uses is kept above the limit")
	}
	before := repo.count()
	if _, err := get(t, f, ref(repo.URL, "web", "1.0.0"), access); err != nil || repo.count() != before+2 {
		t.Errorf("%v, %d requests", err, repo.count()-before)
	}
}

func TestRecordsAreBounded(t *testing.T) {
	r, err := openRecords(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		r.put(strings.Repeat("a", i+1), digestOf(nil))
	}
	r.prune(20)
	all, err := os.ReadDir(r.dir)
	if err != nil || len(all) != 18 {
		t.Errorf("%d records, %v", len(all), err)
	}
	if _, ok := r.get("none"); ok {
		t.Error("there is none")
	}
	if err := os.WriteFile(filepath.Join(r.dir, "broken"), []byte("sha256:12"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.get("broken"); ok {
		t.Error("a broken record was believed")
	}
}
