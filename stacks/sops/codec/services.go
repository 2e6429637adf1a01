package codec

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"
	"github.com/aws/aws-sdk-go-v2/credentials"
	agekeys "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/azkv"
	"github.com/getsops/sops/v3/hcvault"
	"github.com/getsops/sops/v3/keyservice"
	"github.com/getsops/sops/v3/kms"

	"github.com/ksctl/gitops/stacks/sops"
)

// decryptPart decrypts a part of the data key. name is the name of the key for messages.
func (a *keyResolver) decryptPart(req *keyservice.DecryptRequest) (part []byte, name string, err error) {
	switch k := req.Key.KeyType.(type) {
	case *keyservice.Key_AgeKey:
		part, err = a.decryptAge(k.AgeKey.Recipient, req.Ciphertext)
		name = "the age recipient " + sanitize(k.AgeKey.Recipient)
	case *keyservice.Key_PgpKey:
		part, err = decryptPGP(a.keys.pgp, req.Ciphertext)
		if err != nil {
			a.missingPGP = append(a.missingPGP, k.PgpKey.Fingerprint)
		}
		name = "the PGP key " + sanitize(k.PgpKey.Fingerprint)
	case *keyservice.Key_KmsKey:
		part, err = callService(a, a.keys.aws != nil, AWSCredentials, a.decryptAWS, k.KmsKey, req.Ciphertext)
		name = "the AWS KMS key " + sanitize(k.KmsKey.Arn)
	case *keyservice.Key_GcpKmsKey:
		part, err = callService(a, a.keys.gcp != nil, GCPCredentials, a.decryptGCP, k.GcpKmsKey, req.Ciphertext)
		name = "the GCP KMS key " + sanitize(k.GcpKmsKey.ResourceId)
	case *keyservice.Key_AzureKeyvaultKey:
		part, err = callService(a, a.keys.azure != nil, AzureCredentials, a.decryptAzure, k.AzureKeyvaultKey,
			req.Ciphertext)
		name = "the Azure Key Vault key " + sanitize(k.AzureKeyvaultKey.VaultUrl) + " " +
			sanitize(k.AzureKeyvaultKey.Name)
	case *keyservice.Key_VaultKey:
		part, err = callService(a, a.keys.vault.token != "", VaultToken, a.decryptVault, k.VaultKey, req.Ciphertext)
		name = "the Vault key " + sanitize(k.VaultKey.VaultAddress) + " " + sanitize(k.VaultKey.KeyName)
	case *keyservice.Key_HckmsKey:
		part, err = callService(a, a.keys.huawei != nil, HuaweiCredentials, a.decryptHuawei, k.HckmsKey, req.Ciphertext)
		name = "the Huawei Cloud KMS key " + sanitize(k.HckmsKey.KeyId)
	default:
		return nil, "a key", newError(sops.KeyMissing, "keys of this type are not supported")
	}
	return part, name, err
}

func (a *keyResolver) decryptAge(recipient string, ciphertext []byte) ([]byte, error) {
	if len(a.keys.age) > 0 {
		key := agekeys.MasterKey{Recipient: recipient, EncryptedKey: string(ciphertext)}
		agekeys.ParsedIdentities(a.keys.age).ApplyToMasterKey(&key)
		if part, err := key.Decrypt(); err == nil {
			return part, nil
		}
	}
	a.missingAge = append(a.missingAge, recipient)
	return nil, errMissing // a damaged part is not distinguished: no identity decrypts it either
}

// callService decrypts with a key service if the Secret has credentials for it. Without
// credentials, the library would look for some on this machine. The error does not quote the
// response, which can contain the request.
func callService[K any](a *keyResolver, hasCredentials bool, secretKey string,
	decrypt func(context.Context, K, []byte) ([]byte, error), key K, ciphertext []byte,
) ([]byte, error) {
	if !hasCredentials {
		return nil, newError(sops.KeyMissing, "the Secret has no credentials for this key service (key %s)", secretKey)
	}
	if a.requestsLeft--; a.requestsLeft < 0 {
		return nil, invalid("the file has too many keys of key services: at most %d requests are sent", maxRequests)
	}
	if a.requestsCtx.Err() != nil {
		return nil, newError(sops.ServiceFailed,
			"no request was sent, because other key services did not answer in time")
	}
	ctx, cancel := context.WithTimeout(a.requestsCtx, a.opts.requestTimeout)
	defer cancel()
	part, err := decrypt(ctx, key, ciphertext)
	if err == nil {
		return part, nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return nil, e
	}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) { // the client may time out before ctx
		return nil, newError(sops.ServiceFailed, "the key service did not answer in time")
	}
	if code := statusCode(err); code != 0 {
		return nil, newError(sops.ServiceFailed, "the key service answered %d %s", code, http.StatusText(code))
	}
	return nil, newError(sops.ServiceFailed,
		"the key service can't be reached, or can't decrypt with this key and these credentials")
}

// awsARN matches the ARN of a key or an alias. The region becomes part of a host name.
var awsARN = regexp.MustCompile(
	`^arn:aws[a-z-]*:kms:[a-z]{2,8}(-[a-z]{2,16}){1,3}-[0-9]{1,2}:[0-9]{12}:(key|alias)/[A-Za-z0-9/_-]{1,256}$`)

func (a *keyResolver) decryptAWS(ctx context.Context, k *keyservice.KmsKey, ciphertext []byte) ([]byte, error) {
	if k.Role != "" {
		return nil, newError(sops.AddressRefused, "the file requests the role %s, and assuming roles is not "+
			"supported: set credentials of that role in key %s of the Secret, and remove the role from the file "+
			"(sops rotate)", sanitize(k.Role), AWSCredentials)
	}
	if !awsARN.MatchString(k.Arn) {
		return nil, newError(sops.AddressRefused, "the ARN is not that of a key")
	}
	key := kms.MasterKey{Arn: k.Arn, EncryptedKey: string(ciphertext), EncryptionContext: map[string]*string{}}
	for name, value := range k.Context {
		key.EncryptionContext[name] = &value
	}
	c := a.keys.aws
	kms.NewCredentialsProvider(credentials.NewStaticCredentialsProvider(c.ID, c.Secret, c.Token)).ApplyToMasterKey(&key)
	kms.NewHTTPClient(a.opts.httpClient(nil)).ApplyToMasterKey(&key)
	return key.DecryptContext(ctx)
}

// azureVault matches the address of a vault in any Azure cloud. No other host is allowed, because
// the token that is sent is valid for any vault of the tenant.
var azureVault = regexp.MustCompile(`^https://[a-zA-Z0-9-]{1,127}\.(vault|managedhsm)\.(azure\.net|azure\.cn|usgovcloudapi\.net)/?$`)

func (a *keyResolver) decryptAzure(ctx context.Context, k *keyservice.AzureKeyVaultKey,
	ciphertext []byte) ([]byte, error) {
	if !azureVault.MatchString(k.VaultUrl) {
		return nil, newError(sops.AddressRefused, "the address is not that of an Azure vault")
	}
	options := azcore.ClientOptions{Transport: a.opts.httpClient(nil), Cloud: cloud.AzurePublic}
	switch {
	case strings.Contains(k.VaultUrl, ".azure.cn"):
		options.Cloud = cloud.AzureChina
	case strings.Contains(k.VaultUrl, ".usgovcloudapi.net"):
		options.Cloud = cloud.AzureGovernment
	}
	c := a.keys.azure
	if c.AuthorityHost != "" {
		if _, err := parseURL(c.AuthorityHost); err != nil {
			return nil, newError(sops.AddressRefused, "the authorityHost in key %s of the Secret is not allowed: %s",
				AzureCredentials, toError(err).Message)
		}
		options.Cloud.ActiveDirectoryAuthorityHost = c.AuthorityHost
	}
	token, err := azidentity.NewClientSecretCredential(c.TenantID, c.ClientID, c.ClientSecret,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: options})
	if err != nil {
		return nil, err
	}
	key := azkv.MasterKey{VaultURL: k.VaultUrl, Name: k.Name, Version: k.Version, EncryptedKey: string(ciphertext)}
	azkv.NewTokenCredential(token).ApplyToMasterKey(&key)
	azkv.NewClientOptions(&azkeys.ClientOptions{ClientOptions: options}).ApplyToMasterKey(&key)
	return key.DecryptContext(ctx)
}

// vaultPath matches the path of an engine, or the name of a key in it. The library joins the two,
// and the token could read any path that results.
var vaultPath = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_./-]{0,255}$`)

func (a *keyResolver) decryptVault(ctx context.Context, k *keyservice.VaultKey, ciphertext []byte) ([]byte, error) {
	address, err := parseURL(k.VaultAddress)
	if err != nil {
		return nil, err
	}
	if !vaultPath.MatchString(k.EnginePath) || !vaultPath.MatchString(k.KeyName) ||
		strings.Contains(k.EnginePath+"/"+k.KeyName, "..") {
		return nil, newError(sops.AddressRefused, "the engine path and key name are not a valid path of a key")
	}
	trimSlash := func(s string) string { return strings.TrimRight(s, "/") }
	if allowed := a.keys.vault.addresses; len(allowed) > 0 && !slices.ContainsFunc(allowed, func(s string) bool {
		return trimSlash(s) == trimSlash(k.VaultAddress)
	}) {
		return nil, newError(sops.AddressRefused, "key %s of the Secret does not list the address of the Vault",
			VaultAddresses)
	}
	key := hcvault.MasterKey{VaultAddress: k.VaultAddress, EnginePath: k.EnginePath, KeyName: k.KeyName,
		EncryptedKey: string(ciphertext)}
	hcvault.Token(a.keys.vault.token).ApplyToMasterKey(&key)
	client := a.opts.httpClient(a.keys.vault.roots)
	client.Transport = singleHost{client.Transport, address.Host} // the Vault library follows redirects itself
	hcvault.NewHTTPClient(client).ApplyToMasterKey(&key)
	part, err := key.DecryptContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	return part, nil
}
