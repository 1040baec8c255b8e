// The rig page's service worker: shows notifications on browsers that take them from one alone, as phones' do. It answers
// no request and keeps nothing. src/browser/rig.rs registers it where a person turns notifications on.

// A press looks for the page, and opens one where it was closed.
const lead = async (address) => {
  const pages = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const page = pages.find((page) => page.url.startsWith(registration.scope));
  return page ? page.focus() : clients.openWindow(address ?? registration.scope);
};

addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(lead(event.notification.data));
});
