package server

import (
	"context"
	"errors"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// importStates writes an export to ksctl's state store. It overwrites the keys of the export and
// leaves all others unchanged. Errors are gRPC status errors and quote nothing of the export.
func (s *Server) importStates(ctx context.Context, data []byte) error {
	states, credentials, err := parseExport(data)
	if err != nil {
		return err
	}
	store, err := statestore.Read(ctx, s.opts.StatesClient, s.opts.StatesNamespace, len(credentials) > 0)
	if err != nil {
		return storeError(err)
	}
	if store.External {
		return status.Error(codes.FailedPrecondition,
			"ksctl's state store is an external MongoDB: import the export there")
	}
	const tries = 5
	for try := 1; ; try++ {
		have := map[string][]byte{}
		maps.Copy(have, store.States)
		maps.Copy(have, states)
		if err := state.CheckStoreSize(have); err != nil {
			return status.Error(codes.ResourceExhausted, err.Error())
		}
		err := store.Write(ctx, changedValues(states, store.States), changedValues(credentials, store.Credentials))
		if err == nil {
			s.opts.Log.Info("imported an export", "namespace", s.opts.StatesNamespace, "states", len(states),
				"credentials", len(credentials))
			return nil
		}
		if try == tries {
			return storeError(err)
		}
		if err := store.ReloadAfterConflict(ctx, err); err != nil {
			return storeError(err)
		}
	}
}

// parseExport returns the states and credentials of an export, by their keys in the store.
func parseExport(data []byte) (states, credentials map[string][]byte, err error) {
	f, err := state.Parse("data", data)
	if err != nil {
		return nil, nil, status.Errorf(codes.InvalidArgument, "%v", err)
	}
	if f.Form != state.ExportForm {
		return nil, nil,
			status.Error(codes.InvalidArgument, "data is not a ksctl export: Clusters and Credentials are missing")
	}
	states, credentials = map[string][]byte{}, map[string][]byte{}
	for _, c := range f.Clusters {
		if wrong := c.Validate(); len(wrong) > 0 {
			return nil, nil, status.Errorf(codes.InvalidArgument, "invalid cluster in the export: %v", wrong[0])
		}
		if c.External {
			return nil, nil,
				status.Errorf(codes.FailedPrecondition,
					"cluster %s was exported from an external MongoDB, which still holds its state", c.ID)
		}
		states[c.ID.Key()] = c.JSON()
	}
	for _, c := range f.Credentials {
		credentials[c.Cloud] = c.JSON()
	}
	return states, credentials, nil
}

// changedValues returns the values of want that the store lacks or holds differently.
func changedValues(want, have map[string][]byte) map[string][]byte {
	out := maps.Clone(want)
	maps.DeleteFunc(out, func(key string, v []byte) bool { return have[key] != nil && state.Equal(v, have[key]) })
	return out
}

// storeError converts an error of the state store to a gRPC status error.
func storeError(err error) error {
	code := codes.Unavailable
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		code = codes.FailedPrecondition
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		code = codes.Aborted
	case apierrors.IsRequestEntityTooLargeError(err):
		code = codes.ResourceExhausted
	}
	return status.Error(code, err.Error())
}
