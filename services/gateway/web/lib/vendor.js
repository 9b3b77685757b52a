// Libraries that are loaded when somebody needs them.

/**
 * What `load` gives, which is done once; after an error the next one tries again.
 * @template T
 * @param {() => Promise<T>} load
 * @returns {() => Promise<T>}
 */
export function once(load) {
  /** @type {Promise<T> | null} */
  let loading = null;
  return () =>
    (loading ??= load().catch((error) => {
      loading = null;
      throw error;
    }));
}

/** A style sheet of vendor/ is in force; without it things look odd and work. @param {string} name */
export function style(name) {
  return new Promise((resolve) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL(`../vendor/${name}`, import.meta.url).href;
    link.onload = link.onerror = () => resolve(undefined);
    document.head.append(link);
  });
}
