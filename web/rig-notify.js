// The rig page's service worker. It shows notifications in browsers that accept them only from service workers, such as
// mobile ones. It handles no requests and stores nothing. src/browser/rig.rs registers it when the user turns
// notifications on.

// Focuses the page after a click on a notification, or opens it.
const lead = async (address) => {
  const pages = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const page = pages.find((page) => page.url.startsWith(registration.scope));
  return page ? page.focus() : clients.openWindow(address ?? registration.scope);
};

addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(lead(event.notification.data));
});
