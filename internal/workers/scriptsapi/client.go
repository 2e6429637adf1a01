package scriptsapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// These paths are those that clients such as wrangler use beside the ones of scripts.

func (s *Server) verifyToken(r *request) (any, error) {
	return answer{map[string]any{"id": r.accounts[0], "status": "active"},
		[]note{{codeValidToken, "This API Token is valid and active"}}}, nil
}

func accountResult(account string) map[string]any {
	return map[string]any{"id": account, "name": account}
}

func (s *Server) listAccounts(r *request) (any, error) {
	out := list{}
	for _, account := range r.accounts {
		out = append(out, accountResult(account))
	}
	return out, nil
}

func (s *Server) listMemberships(r *request) (any, error) {
	out := list{}
	for _, account := range r.accounts {
		out = append(out, map[string]any{"id": account, "status": "accepted", "account": accountResult(account)})
	}
	return out, nil
}

// serviceError returns the error of paths that have services, not scripts, in their names.
func serviceError(r *request, err error) error {
	var failure *apiError
	if !strings.Contains(r.Pattern, "/workers/services/") || !errors.As(err, &failure) ||
		failure.code != codeScriptNotFound {
		return err
	}
	return failf(http.StatusNotFound, codeServiceNotFound, "workers.api.error.service_not_found: account %s has no "+
		"script %s", r.account, r.script)
}

func (s *Server) getService(r *request) (any, error) {
	o, err := s.deployment(r)
	if err != nil {
		return nil, serviceError(r, err)
	}
	return map[string]any{"id": r.script, "created_on": o.created(), "modified_on": o.modified(),
		"default_environment": map[string]any{"environment": "production", "created_on": o.created(),
			"modified_on": o.modified(), "script": newScriptResult(*o)}}, nil
}

// subdomainMessage explains that there are no subdomains.
const subdomainMessage = "there are no workers.dev subdomains and no preview URLs: set workers_dev = false, and " +
	"reach the script by the Service of its account"

func noSubdomain(*request) (any, error) {
	return nil, failf(http.StatusNotFound, codeSubdomainMissing, subdomainMessage)
}

// subdomain is whether a script has a subdomain.
type subdomain struct {
	Enabled         bool `json:"enabled"`
	PreviewsEnabled bool `json:"previews_enabled"`
}

func (s *Server) getSubdomain(r *request) (any, error) {
	_, err := s.deployment(r)
	return subdomain{}, err
}

func (s *Server) postSubdomain(r *request) (any, error) {
	var set subdomain
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxMetadata)).Decode(&set); err != nil {
		return nil, invalidf("the body is no JSON object with enabled and previews_enabled")
	}
	if set.Enabled || set.PreviewsEnabled {
		return nil, invalidf(subdomainMessage)
	}
	return s.getSubdomain(r)
}

// getReferences returns that no script refers to another one: there are no such bindings.
func (s *Server) getReferences(r *request) (any, error) {
	_, err := s.deployment(r)
	return map[string]any{}, err
}

func emptyList(*request) (any, error) { return list{}, nil }

// patchSettings accepts settings that change nothing.
func (s *Server) patchSettings(r *request) (any, error) {
	var fields map[string]json.RawMessage
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxMetadata)).Decode(&fields); err != nil {
		return nil, invalidf("the body is no JSON object")
	}
	for name, value := range fields {
		if !isEmpty(value) && !slices.Contains(withoutEffect, name) {
			return nil, invalidf("setting %s is not supported: remove it", clip(name))
		}
	}
	_, err := s.deployment(r)
	return map[string]any{"logpush": false, "tags": list{}, "tail_consumers": list{}}, err
}
