package restapi

import (
	"context"
	"fmt"
	"net/http"
	"net/mail"
	"regexp"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// authenticate returns the caller of a request. A wrong token is an *answerError of the API server.
// It comes before anything else, so that strangers cause little work and learn nothing.
func (h *handler) authenticate(ctx context.Context, r *http.Request) (*caller, error) {
	token, err := bearerToken(r.Header)
	if err != nil {
		return nil, err
	}
	c := &caller{server: h.server, token: token}
	review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview",
		APIVersion: authenticationv1.SchemeGroupVersion.String()}}
	if err := c.create(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review); err != nil {
		return nil, err
	}
	c.user = review.Status.UserInfo.Username
	return c, nil
}

// authorize returns an error unless the caller has a permission for the object.
func (c *call) authorize(ctx context.Context, verb string) error {
	review := &authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview",
		APIVersion: authorizationv1.SchemeGroupVersion.String()},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: c.Group, Version: c.requestVersion(), Resource: c.Resource, Namespace: c.namespace,
			Name: c.name}}}
	if err := c.create(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review); err != nil {
		return err
	}
	if review.Status.Allowed {
		return nil
	}
	reason := ""
	if review.Status.Reason != "" {
		reason = ": " + review.Status.Reason
	}
	return newStatusError(http.StatusForbidden, metav1.StatusReasonForbidden,
		&metav1.StatusDetails{Name: c.name, Group: c.Group, Kind: c.Resource},
		"%s %q is forbidden: the user of the token can't %s it in the namespace %q%s", c.GroupResource, c.name, verb,
		c.namespace, reason)
}

// author returns the name and the e-mail address of a user for commits. The address of a user
// without one is below cluster.local, so that it is the same for each commit and belongs to nobody.
func author(user string) (name, email string) {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return fmt.Sprintf("ServiceAccount %s/%s", namespace, name), name + "@" + namespace +
			".serviceaccounts.cluster.local"
	}
	if a, err := mail.ParseAddress(user); err == nil && a.Address == user {
		return user, user
	}
	return user, strings.Trim(notInAddress.ReplaceAllString(user, "-"), "-.") + "@users.cluster.local"
}

// notInAddress matches what the local part of an address does not have.
var notInAddress = regexp.MustCompile(`[^-A-Za-z0-9._+]+`)
