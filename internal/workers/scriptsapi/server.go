package scriptsapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/workers/filestore"
)

// Defaults and limits of Options.
const (
	DefaultMaxFileSize   = 10 << 20
	DefaultMaxUploadSize = 32 << 20
	DefaultKeep          = 24 * time.Hour
	// DefaultMaxCompatibilityDate is that of the workerd that runs the scripts.
	DefaultMaxCompatibilityDate = "2026-11-17"
	// maxConcurrentScripts bounds the memory of scripts that are received or sent.
	maxConcurrentScripts = 4
	// requestTimeout bounds a request, so that none waits for ever for the API server.
	requestTimeout = 5 * time.Minute
)

// Options configure a Server.
type Options struct {
	// Client reads and writes the objects. It must not cache.
	Client client.Client
	// Namespace is that of all accounts.
	Namespace string
	// Files keeps the files of the scripts.
	Files filestore.Store
	// VersionsFolder is the folder of the versions that are uploaded and not deployed.
	VersionsFolder string
	// TokensFolder has a file for each account, with its tokens, one per line.
	TokensFolder string
	// MaxFileSize and MaxUploadSize are the maximum size of a file and of all files of a script, in
	// bytes; 0 is the default.
	MaxFileSize, MaxUploadSize int64
	// MaxCompatibilityDate is the latest compatibility date, as 2006-01-02; "" is the default.
	MaxCompatibilityDate string
	// Keep is how long a file stays that no script uses; 0 is the default.
	Keep time.Duration
	// DisableSecrets refuses bindings, so that no Secret is read or written.
	DisableSecrets bool
	Log            logr.Logger
	// Clock is nil except in tests.
	Clock clock.PassiveClock
}

// Server answers the API. It must be the only one of its namespace.
type Server struct {
	opts        Options
	tokens      *tokens
	deployments *deployments
	secrets     *secrets
	versions    *versions
	limits      uploadLimits
	handler     http.Handler

	// scripts has a slot for each script in memory.
	scripts chan struct{}
	// collection is locked for reading from when files are stored until something refers to them.
	collection sync.RWMutex

	mu       sync.Mutex
	accounts map[string]*sync.Mutex
}

// New returns a Server. It reads the tokens.
func New(o Options) (*Server, error) {
	o.MaxFileSize = cmp.Or(o.MaxFileSize, DefaultMaxFileSize)
	o.MaxUploadSize = cmp.Or(o.MaxUploadSize, DefaultMaxUploadSize)
	o.MaxCompatibilityDate = cmp.Or(o.MaxCompatibilityDate, DefaultMaxCompatibilityDate)
	o.Keep = cmp.Or(o.Keep, DefaultKeep)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	t, err := newTokens(o.TokensFolder, o.Clock, o.Log)
	if err != nil {
		return nil, err
	}
	v, err := newVersions(o.VersionsFolder)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, tokens: t, versions: v,
		deployments: &deployments{client: o.Client, namespace: o.Namespace, now: o.Clock.Now},
		secrets:     &secrets{client: o.Client, namespace: o.Namespace, disabled: o.DisableSecrets},
		limits:      uploadLimits{file: o.MaxFileSize, total: o.MaxUploadSize, maxDate: o.MaxCompatibilityDate},
		scripts:     make(chan struct{}, maxConcurrentScripts), accounts: map[string]*sync.Mutex{}}
	s.handler = s.routes()
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// request is a request of an authenticated client.
type request struct {
	*http.Request
	// accounts are those of the token.
	accounts []string
	// account and script are those of the URL.
	account, script string
}

// endpoint answers a request. The result is written in an envelope, except a raw one.
type endpoint func(r *request) (any, error)

// raw is a result that is not JSON.
type raw struct {
	header http.Header
	body   []byte
}

// methods are the endpoints of a path.
type methods map[string]endpoint

func (s *Server) routes() http.Handler {
	const (
		base    = "/client/v4"
		account = base + "/accounts/{account}"
		scripts = account + "/workers/scripts"
		script  = scripts + "/{script}"

		get, put, post, remove = http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
	)
	mux := http.NewServeMux()
	for path, m := range map[string]methods{
		base + "/user/tokens/verify": {get: s.verifyToken},
		base + "/memberships":        {get: s.listMemberships},
		base + "/accounts":           {get: s.listAccounts},

		scripts:                      {get: s.listScripts},
		script:                       {put: s.putScript, get: s.getScript, remove: s.deleteScript},
		script + "/content/v2":       {get: s.getScript},
		script + "/secrets":          {get: s.listSecrets, put: s.putSecret},
		script + "/secrets/{secret}": {get: s.getSecret, remove: s.deleteSecret},
		script + "/versions":         {post: s.postVersion},
		script + "/deployments":      {get: s.listDeployments, post: s.postDeployment},
		script + "/script-settings":  {http.MethodPatch: s.patchSettings},
		script + "/subdomain":        {get: s.getSubdomain, post: s.postSubdomain},
		script + "/references":       {get: s.getReferences},

		account + "/workers/services/{script}":          {get: s.getService, remove: s.deleteScript},
		account + "/workers/tails/by-consumer/{script}": {get: emptyList},
		account + "/workers/subdomain":                  {get: noSubdomain},
		account + "/storage/kv/namespaces":              {get: emptyList},
	} {
		mux.Handle(path, s.serve(m))
	}
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, failf(http.StatusNotFound, codeNoRoute, "%s is no path of this API: it has the scripts of "+
			"Workers alone", clip(r.URL.Path)))
	})
	return mux
}

// serve returns the handler of a path.
func (s *Server) serve(m methods) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := s.opts.Clock.Now()
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		result, err := s.answer(m, r)
		var failure *apiError
		switch {
		case err != nil:
			failure = s.failure(r, err)
			if failure.status == http.StatusMethodNotAllowed {
				w.Header().Set("Allow", strings.Join(m.names(), ", "))
			}
			writeError(w, failure)
		default:
			writeAny(w, result)
		}
		if r.Method != http.MethodGet || failure != nil {
			s.logRequest(r, failure, s.opts.Clock.Since(start))
		}
	})
}

func writeAny(w http.ResponseWriter, result any) {
	page, ok := result.(raw)
	if !ok {
		writeResult(w, result)
		return
	}
	for name, values := range page.header {
		w.Header()[name] = values
	}
	_, _ = w.Write(page.body)
}

// logRequest logs a request without its headers, its query and its body.
func (s *Server) logRequest(r *http.Request, failure *apiError, took time.Duration) {
	keysAndValues := []any{"method", r.Method, "path", clip(r.URL.Path), "duration", took.String()}
	if failure == nil {
		s.opts.Log.Info("request succeeded", keysAndValues...)
		return
	}
	s.opts.Log.Info("request failed", append(keysAndValues, "status", failure.status, "code", failure.code,
		"message", failure.message)...)
}

// answer authenticates and authorizes a request, and calls its endpoint.
func (s *Server) answer(m methods, r *http.Request) (any, error) {
	accounts, err := s.authenticate(r)
	if err != nil {
		return nil, err
	}
	req := &request{Request: r, accounts: accounts, account: r.PathValue("account"), script: r.PathValue("script")}
	if req.account != "" && !slices.Contains(accounts, req.account) {
		return nil, failf(http.StatusForbidden, codeUnauthorized, "unauthorized to access account %s: the token is "+
			"for another one", clip(req.account))
	}
	call := m[r.Method]
	if call == nil {
		return nil, failf(http.StatusMethodNotAllowed, codeMethod, "method %s is not available for this path: use %s",
			clip(r.Method), strings.Join(m.names(), ", "))
	}
	if req.account != "" {
		if err := s.deployments.checkAccount(r.Context(), req.account); err != nil {
			return nil, err
		}
	}
	if req.script != "" && !scriptPattern.MatchString(req.script) {
		return nil, failf(http.StatusBadRequest, codeScriptName, "script name %q is invalid: use at most 63 lower "+
			"case letters, digits and -, and begin and end with a letter or a digit; there are no underscores",
			clip(req.script))
	}
	return call(req)
}

// authenticate returns the accounts of the token of a request.
func (s *Server) authenticate(r *http.Request) ([]string, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		return nil, failf(http.StatusUnauthorized, codeAuthentication, "Authentication error: set the header "+
			"Authorization to Bearer and a token of the account")
	}
	accounts := s.tokens.accounts(token)
	if len(accounts) == 0 {
		return nil, failf(http.StatusUnauthorized, codeAuthentication, "Authentication error: the token is not valid")
	}
	return accounts, nil
}

func (m methods) names() []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// failure returns the answer to a request that failed. Details of the cluster are only logged.
func (s *Server) failure(r *http.Request, err error) *apiError {
	var failure *apiError
	switch {
	case errors.As(err, &failure):
	case errors.Is(err, filestore.ErrFull) || errors.Is(err, syscall.ENOSPC):
		failure = failf(http.StatusInsufficientStorage, codeTooLarge, "%s: delete scripts, or have the volume enlarged",
			filestore.ErrFull)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		failure = invalidf("the API server refused the script: %v", err)
	case retriable(err):
		failure = failf(http.StatusServiceUnavailable, codeInternal,
			"others change the script at the same time: try again")
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		failure = failf(http.StatusServiceUnavailable, codeInternal, "the request took too long: try again")
	default:
		failure = failf(http.StatusInternalServerError, codeInternal, "an internal error occurred: its cause is in "+
			"the log of the API")
	}
	if failure.status >= http.StatusInternalServerError {
		s.opts.Log.Error(err, "answering a request failed", "method", r.Method, "path", clip(r.URL.Path))
	}
	return failure
}

// lock serializes the changes of an account until the returned function is called.
func (s *Server) lock(account string) (unlock func()) {
	s.mu.Lock()
	m := s.accounts[account]
	if m == nil {
		m = &sync.Mutex{}
		s.accounts[account] = m
	}
	s.mu.Unlock()
	m.Lock()
	return m.Unlock
}
