package site.ycsb.db;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Trust in the certificate authorities of a PEM file, as other drivers have it by tlsCAFile; Java's does not know it. */
final class Trust {
  private Trust() {
  }

  /**
   * Returns a context that trusts what the certificates of the file have signed, and nothing else.
   *
   * @throws StartupException when the file cannot be read or holds no certificate
   */
  static SSLContext in(String path) {
    try (InputStream file = Files.newInputStream(Path.of(path))) {
      KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
      store.load(null, null);
      int number = 0;
      for (Certificate certificate : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
        store.setCertificateEntry("ca" + number++, certificate);
      }
      if (number == 0) {
        throw new StartupException(PropertyNames.TLS_CA_FILE + "=" + path + ": there is no certificate in it");
      }
      TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(store);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, trust.getTrustManagers(), null);
      return context;
    } catch (IOException | GeneralSecurityException e) {
      throw new StartupException(PropertyNames.TLS_CA_FILE + "=" + path + ": " + e);
    }
  }
}
