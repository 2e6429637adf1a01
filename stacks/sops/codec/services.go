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

// open decrypts a part of the data key. Name is what the key is called in messages.
func (a *attempt) open(req *keyservice.DecryptRequest) (part []byte, name string, err error) {
	switch k := req.Key.KeyType.(type) {
	case *keyservice.Key_AgeKey:
		part, err := a.openAge(k.AgeKey.Recipient, req.Ciphertext)
		return part, "the age recipient " + shown(k.AgeKey.Recipient), err
	case *keyservice.Key_PgpKey:
		part, err := openPGP(a.keys.pgp, req.Ciphertext)
		if err != nil {
			a.missingPGP = append(a.missingPGP, k.PgpKey.Fingerprint)
		}
		return part, "the PGP key " + shown(k.PgpKey.Fingerprint), err
	case *keyservice.Key_KmsKey:
		part, err := a.ask(a.keys.aws != nil, AWSCredentials, func(ctx context.Context) ([]byte, error) { return a.openAWS(ctx, k.KmsKey, req.Ciphertext) })
		return part, "the AWS KMS key " + shown(k.KmsKey.Arn), err
	case *keyservice.Key_GcpKmsKey:
		part, err := a.ask(a.keys.gcp != nil, GCPCredentials, func(ctx context.Context) ([]byte, error) { return a.openGCP(ctx, k.GcpKmsKey, req.Ciphertext) })
		return part, "the GCP KMS key " + shown(k.GcpKmsKey.ResourceId), err
	case *keyservice.Key_AzureKeyvaultKey:
		part, err := a.ask(a.keys.azure != nil, AzureCredentials, func(ctx context.Context) ([]byte, error) { return a.openAzure(ctx, k.AzureKeyvaultKey, req.Ciphertext) })
		return part, "the Azure Key Vault key " + shown(k.AzureKeyvaultKey.VaultUrl) + " " + shown(k.AzureKeyvaultKey.Name), err
	case *keyservice.Key_VaultKey:
		part, err := a.ask(a.keys.vault.token != "", VaultToken, func(ctx context.Context) ([]byte, error) { return a.openVault(ctx, k.VaultKey, req.Ciphertext) })
		return part, "the Vault key " + shown(k.VaultKey.VaultAddress) + " " + shown(k.VaultKey.KeyName), err
	case *keyservice.Key_HckmsKey:
		part, err := a.ask(a.keys.huawei != nil, HuaweiCredentials, func(ctx context.Context) ([]byte, error) { return a.openHuawei(ctx, k.HckmsKey, req.Ciphertext) })
		return part, "the Huawei Cloud KMS key " + shown(k.HckmsKey.KeyId), err
	}
	return nil, "a key", fail(sops.KeyMissing, "there is no way to use keys of its kind here")
}

func (a *attempt) openAge(recipient string, sealed []byte) ([]byte, error) {
	if len(a.keys.age) > 0 {
		key := agekeys.MasterKey{Recipient: recipient, EncryptedKey: string(sealed)}
		agekeys.ParsedIdentities(a.keys.age).ApplyToMasterKey(&key)
		if part, err := key.Decrypt(); err == nil {
			return part, nil
		}
	}
	a.missingAge = append(a.missingAge, recipient)
	return nil, errMissing // or damaged; either way it is for none of ours
}

// ask has a key service asked, if there are credentials for it: without them the library
// would look for some on this machine. What it says may hold what it was sent.
func (a *attempt) ask(has bool, secret string, do func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	if !has {
		return nil, fail(sops.KeyMissing, "the Secret has no credentials for it (key %s)", secret)
	}
	if a.left--; a.left < 0 {
		return nil, invalid("the file has more keys of key services than are asked (%d)", a.opts.Limits.Requests)
	}
	if a.asking.Err() != nil {
		return nil, fail(sops.ServiceFailed, "it is not asked, as others did not answer in time")
	}
	ctx, cancel := context.WithTimeout(a.asking, a.opts.Limits.RequestTimeout)
	defer cancel()
	part, err := do(ctx)
	if err == nil {
		return part, nil
	}
	if e, ok := asOurs(err); ok {
		return nil, e
	}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) { // of a client, which may notice first
		return nil, fail(sops.ServiceFailed, "it does not answer in time")
	}
	if code := answered(err); code != 0 {
		return nil, fail(sops.ServiceFailed, "it answers %d %s", code, http.StatusText(code))
	}
	return nil, fail(sops.ServiceFailed, "it can't be reached, or does not decrypt with this key and these credentials")
}

// awsARN of a key or alias. The region becomes a part of a host's name.
var awsARN = regexp.MustCompile(`^arn:aws[a-z-]*:kms:[a-z]{2,8}(-[a-z]{2,16}){1,3}-[0-9]{1,2}:[0-9]{12}:(key|alias)/[A-Za-z0-9/_-]{1,256}$`)

func (a *attempt) openAWS(ctx context.Context, k *keyservice.KmsKey, sealed []byte) ([]byte, error) {
	if k.Role != "" {
		return nil, fail(sops.AddressRefused, "the file asks to assume the role %s, which is not done: put credentials of that role into the key %s of the Secret, and take the role out of the file (sops rotate)", shown(k.Role), AWSCredentials)
	}
	if !awsARN.MatchString(k.Arn) {
		return nil, fail(sops.AddressRefused, "that is no ARN of a key")
	}
	key := kms.MasterKey{Arn: k.Arn, EncryptedKey: string(sealed), EncryptionContext: map[string]*string{}}
	for name, value := range k.Context {
		key.EncryptionContext[name] = &value
	}
	c := a.keys.aws
	kms.NewCredentialsProvider(credentials.NewStaticCredentialsProvider(c.ID, c.Secret, c.Token)).ApplyToMasterKey(&key)
	kms.NewHTTPClient(a.opts.client(nil)).ApplyToMasterKey(&key)
	return key.DecryptContext(ctx)
}

// azureVault is an address of a vault of one of Azure's clouds. The token that is sent is good
// for any vault of the tenant, so it goes to no other host.
var azureVault = regexp.MustCompile(`^https://[a-zA-Z0-9-]{1,127}\.(vault|managedhsm)\.(azure\.net|azure\.cn|usgovcloudapi\.net)/?$`)

func (a *attempt) openAzure(ctx context.Context, k *keyservice.AzureKeyVaultKey, sealed []byte) ([]byte, error) {
	if !azureVault.MatchString(k.VaultUrl) {
		return nil, fail(sops.AddressRefused, "its address is not that of a vault of Azure")
	}
	options := azcore.ClientOptions{Transport: a.opts.client(nil), Cloud: cloud.AzurePublic}
	switch {
	case strings.Contains(k.VaultUrl, ".azure.cn"):
		options.Cloud = cloud.AzureChina
	case strings.Contains(k.VaultUrl, ".usgovcloudapi.net"):
		options.Cloud = cloud.AzureGovernment
	}
	c := a.keys.azure
	if c.AuthorityHost != "" {
		if err := a.opts.address(c.AuthorityHost); err != nil {
			return nil, fail(sops.AddressRefused, "the authorityHost in the key %s of the Secret can't be used: %s", AzureCredentials, ours(err).Message)
		}
		options.Cloud.ActiveDirectoryAuthorityHost = c.AuthorityHost
	}
	token, err := azidentity.NewClientSecretCredential(c.TenantID, c.ClientID, c.ClientSecret, &azidentity.ClientSecretCredentialOptions{ClientOptions: options})
	if err != nil {
		return nil, err
	}
	key := azkv.MasterKey{VaultURL: k.VaultUrl, Name: k.Name, Version: k.Version, EncryptedKey: string(sealed)}
	azkv.NewTokenCredential(token).ApplyToMasterKey(&key)
	azkv.NewClientOptions(&azkeys.ClientOptions{ClientOptions: options}).ApplyToMasterKey(&key)
	return key.DecryptContext(ctx)
}

// vaultPath is a path of an engine, or the name of a key in it. The library joins them, and the
// token would open whatever that leads to.
var vaultPath = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_./-]{0,255}$`)

func (a *attempt) openVault(ctx context.Context, k *keyservice.VaultKey, sealed []byte) ([]byte, error) {
	if err := a.opts.address(k.VaultAddress); err != nil {
		return nil, err
	}
	if !vaultPath.MatchString(k.EnginePath) || !vaultPath.MatchString(k.KeyName) || strings.Contains(k.EnginePath+"/"+k.KeyName, "..") {
		return nil, fail(sops.AddressRefused, "that is no path of a key")
	}
	plain := func(s string) string { return strings.TrimRight(s, "/") }
	if named := a.keys.vault.addresses; len(named) > 0 && !slices.ContainsFunc(named, func(s string) bool { return plain(s) == plain(k.VaultAddress) }) {
		return nil, fail(sops.AddressRefused, "the key %s of the Secret does not name its address", VaultAddresses)
	}
	key := hcvault.MasterKey{VaultAddress: k.VaultAddress, EnginePath: k.EnginePath, KeyName: k.KeyName, EncryptedKey: string(sealed)}
	hcvault.Token(a.keys.vault.token).ApplyToMasterKey(&key)
	client := a.opts.client(a.keys.vault.roots)
	client.Transport = oneHost{client.Transport, hostOf(k.VaultAddress)} // the library of Vault follows redirects by itself
	hcvault.NewHTTPClient(client).ApplyToMasterKey(&key)
	part, err := key.DecryptContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	return part, nil
}
